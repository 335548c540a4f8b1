/** A consumer, as the page sees it: a worker that can be told how to work, and be killed. */

import type { Book } from "./book.js";
import type { Begin, FromConsumer, Mode, ToConsumer } from "./letters.js";

const NAMES = ["Ada", "Grace", "Edsger", "Barbara", "Donald", "Margaret"];

/** `connecting`, `open` and `closed` are its connection's; `killed` is our doing. */
export type ConsumerState = "connecting" | "open" | "closed" | "killed";

export class Consumer {
  readonly name: string;
  state: ConsumerState = "connecting";
  mode: Mode = "works";
  /** What it holds, each in a slot of its own: as many as it has credit. */
  readonly slots: (string | null)[];
  done = 0;
  failed = 0;
  lost = 0;
  onChange: () => void = () => {};
  onState: (state: ConsumerState) => void = () => {};
  private worker: Worker | null = null;

  constructor(
    readonly number: number,
    private book: Book,
    private begin: Omit<Begin, "is" | "name" | "mode" | "fixed">,
    private fixed: () => number,
  ) {
    this.name = NAMES[number % NAMES.length]!;
    this.slots = Array<string | null>(begin.credit).fill(null);
  }

  get held(): number {
    return this.slots.filter(Boolean).length;
  }

  start(): void {
    this.slots.fill(null);
    this.enter("connecting");
    this.worker = new Worker("./worker.js", { type: "module", name: this.name });
    this.worker.onmessage = ({ data }: MessageEvent<FromConsumer>) => this.heard(data);
    const { name, mode } = this;
    this.tell({ ...this.begin, is: "begin", name, mode, fixed: this.fixed() });
  }

  /** Nobody says goodbye: its socket is gone, its leases run on. */
  kill(): void {
    this.worker?.terminate();
    this.worker = null;
    this.enter("killed");
    for (const entry of this.book.heldBy(this.number)) this.book.onDoubt(entry, Date.now());
  }

  behave(mode: Mode): void {
    this.mode = mode;
    this.tell({ is: "mode", mode });
    this.onChange();
  }

  tell(letter: ToConsumer): void {
    this.worker?.postMessage(letter);
  }

  /** It no longer has it, or never had. */
  release(uid: string): void {
    const slot = this.slots.indexOf(uid);
    if (slot >= 0) this.slots[slot] = null;
  }

  private enter(state: ConsumerState): void {
    if (state === this.state) return;
    this.state = state;
    this.onState(state);
    this.onChange();
  }

  private heard(letter: FromConsumer): void {
    if (!this.worker) return;
    const { book } = this;
    const now = Date.now();
    const { leaseMs } = this.begin;
    switch (letter.is) {
      case "state":
        return this.enter(letter.state as ConsumerState);
      case "took":
        this.take(book.took(this.number, letter, leaseMs, now).uid);
        break;
      case "extended":
        return book.extended(letter.id, leaseMs, now);
      case "settling":
        return book.settling(letter.id, letter.how);
      case "acked":
        this.done += 1;
        book.acked(letter.id);
        break;
      case "failed":
        this.failed += 1;
        book.failed(letter.id, letter.error, now);
        break;
      case "lost":
        this.lost += 1;
        book.lost(this.number, letter.id, now);
        break;
    }
    if (letter.is !== "took") this.release(book.byId(letter.id)?.uid ?? "");
    this.onChange();
  }

  /** Where all slots are taken, one of them is being settled: the server heard of it first. */
  private take(uid: string): void {
    this.release(uid);
    let free = this.slots.indexOf(null);
    if (free < 0) free = this.slots.findIndex((held) => this.isSettling(held!));
    this.slots[Math.max(free, 0)] = uid;
  }

  private isSettling(uid: string): boolean {
    const entry = this.book.entries.get(uid);
    return !entry || entry.settling !== null || entry.place !== "held";
  }
}
