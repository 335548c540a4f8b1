/** Publishes: one, many, or so many a second. */

import { Item, type Client } from "pushlane";
import type { Book } from "./book.js";
import type { Entry } from "./entry.js";
import { laneOf, NO_KEY } from "./keys.js";
import type { Job } from "./letters.js";
import { MOST_ENTRIES } from "./settings.js";

const TICK_MS = 100;

export class Producer {
  /** Messages a second. */
  rate = 0;
  onFault: (error: unknown) => void = () => {};
  private number = 0;
  private bug = 0;
  private owed = 0;

  constructor(
    private client: Client,
    private queue: string,
    private book: Book,
  ) {
    setInterval(() => this.tick(), TICK_MS);
  }

  /** How many more the page can draw. */
  get room(): number {
    const { sending, waiting, retrying, held, dead } = this.book.counts;
    return Math.max(0, MOST_ENTRIES - sending - waiting - retrying - held - dead);
  }

  /** The number of the last bug that was published. */
  get lastBug(): number {
    return this.bug;
  }

  async publish(count: number): Promise<void> {
    const lanes = Array.from({ length: Math.min(count, this.room) }, () => laneOf(this.number++));
    await this.send(lanes.map((lane) => this.book.send(lane)));
  }

  /** One that nobody can do until the bug is fixed. */
  async publishBad(): Promise<void> {
    if (!this.room) return;
    let lane = laneOf(this.number++);
    if (lane === NO_KEY) lane = laneOf(this.number++); // with a key one sees what waits behind it
    await this.send([this.book.send(lane, ++this.bug)]);
  }

  private async send(entries: Entry[]): Promise<void> {
    const results = await this.client.publishMany(this.queue, entries.map(itemOf));
    results.forEach(({ id, error }, at) => {
      if (id) this.book.stored(entries[at]!, id);
      else {
        this.book.refused(entries[at]!);
        this.onFault(error);
      }
    });
  }

  private tick(): void {
    if (!this.rate) return void (this.owed = 0);
    this.owed += (this.rate * TICK_MS) / 1000;
    const due = Math.floor(this.owed);
    this.owed -= due;
    if (due) void this.publish(due);
  }
}

function itemOf({ uid, lane, n, bug }: Entry): Item {
  const body: Job = { uid, n: n! };
  if (bug) body.bug = bug;
  return lane === NO_KEY ? new Item({ body }) : new Item({ body, key: lane });
}
