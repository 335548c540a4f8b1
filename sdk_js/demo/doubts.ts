/** Asks the server about messages of which the page can't know how they fare. */

import type { Client } from "pushlane";
import type { Book } from "./book.js";
import type { Entry } from "./entry.js";

/** Questions at a time: browsers open six connections to a server at most. */
const AT_ONCE = 3;
const AGAIN_MS = 500;

export class Doubts {
  private waiting = new Map<Entry, number>();
  private asking = new Set<Entry>();
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private client: Client,
    private queue: string,
    private book: Book,
  ) {
    book.onDoubt = (entry, at) => this.add(entry, at);
    book.onSuspect = (earlier, taken) => void this.suspect(earlier, taken);
  }

  /** Ask about it, not before `at`. */
  add(entry: Entry, at: number): void {
    this.waiting.set(entry, at);
    this.next();
  }

  private next(): void {
    clearTimeout(this.timer);
    const now = Date.now();
    let soonest = Infinity;
    for (const [entry, at] of this.waiting) {
      if (at > now) soonest = Math.min(soonest, at);
      else if (this.asking.size < AT_ONCE && !this.asking.has(entry)) void this.ask(entry);
    }
    if (soonest < Infinity) this.timer = setTimeout(() => this.next(), soonest - now + 20);
  }

  private async ask(entry: Entry): Promise<void> {
    this.waiting.delete(entry);
    if (!entry.id || entry.place === "acked") return;
    this.asking.add(entry);
    const { changes } = entry;
    try {
      if (this.client.state !== "open") throw new Error("the server is away");
      const explanation = await this.client.queues.explain(this.queue, entry.id);
      if (entry.changes === changes) this.book.explained(entry, explanation, Date.now());
    } catch {
      this.waiting.set(entry, Date.now() + AGAIN_MS);
    } finally {
      this.asking.delete(entry);
    }
    this.next();
  }

  /** A message was delivered though this one, before it, seemed not to be over. */
  private async suspect(earlier: Entry, taken: Entry): Promise<void> {
    for (;;) {
      try {
        const { state } = await this.client.queues.explain(this.queue, earlier.id!);
        if (!["acked", "dead", "leaving", "unknown"].includes(state)) {
          const why = `${earlier.n} was ${state} when ${taken.n} came`;
          this.book.order.fault(taken.lane, taken.n!, why);
        }
        this.add(earlier, Date.now());
        return;
      } catch {
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      }
    }
  }
}
