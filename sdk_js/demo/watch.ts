/** Looks at the server's own counts and at its dead letters, twice a second. */

import type { Client, Stats } from "pushlane";
import { Audit, countsOf, judge } from "./audit.js";
import type { Book } from "./book.js";
import type { Job } from "./letters.js";

const EVERY_MS = 500;
const SHOWN = 100;

export class Watch {
  readonly audit = new Audit();
  /** What the server said last; null: it is away. */
  stats: Stats | null = null;
  onLook: () => void = () => {};
  /** Dead letters that are on their way back: an older answer may still have them. */
  private redriven = new Set<string>();
  private shown: string[] = [];

  constructor(
    private client: Client,
    private queue: string,
    private dead: string,
    private book: Book,
  ) {}

  /** For ever. */
  async run(): Promise<never> {
    for (;;) {
      try {
        if (this.client.state === "open") await this.look();
        else this.stats = null;
      } catch {
        this.stats = null;
      }
      this.onLook();
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
    }
  }

  private async look(): Promise<void> {
    const { queues } = this.client;
    const before = countsOf(this.book);
    const stats = await queues.stats(this.queue);
    const dead = await queues.stats(this.dead);
    const after = countsOf(this.book);
    this.stats = stats;
    this.audit.add(judge(before, stats.stored + dead.stored, after));
    if (dead.stored) await this.findDead();
  }

  private async findDead(): Promise<void> {
    const { messages } = await this.client.queues.peek(this.dead, { limit: SHOWN });
    this.shown = messages.map(({ id }) => id);
    for (const { id, body, dead, key } of messages) {
      if (this.redriven.has(id) || !dead) continue;
      const job = body as Job | null;
      const uid = typeof job?.uid === "string" ? job.uid : dead.id;
      const entry =
        this.book.entries.get(uid) ?? this.book.adopt(dead.id, uid, key ?? null, job?.n ?? null);
      if (entry.isRedriven && entry.place === "waiting" && entry.id === null) continue;
      this.book.died(entry, dead.error ?? null, dead.attempts);
    }
  }

  /** All dead letters go back; how many. */
  async redrive(): Promise<number> {
    for (const id of this.shown) this.redriven.add(id);
    const { redriven } = await this.client.queues.redrive(this.dead);
    this.book.redriven();
    return redriven;
  }

  /** Finds what was there before this page. */
  async begin(): Promise<void> {
    const { queues } = this.client;
    const stats = await queues.stats(this.queue);
    const dead = await queues.stats(this.dead);
    this.book.carry(stats.stored + dead.stored);
    const { messages } = await queues.peek(this.queue, { limit: 1000 });
    for (const { id, body, key } of messages) {
      const job = body as Partial<Job> | null;
      if (typeof job?.uid === "string") this.book.adopt(id, job.uid, key ?? null, job.n ?? null);
    }
  }
}
