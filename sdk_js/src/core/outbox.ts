/**
 * The messages of one queue on their way out, in order, and their sequence numbers.
 *
 * A message gets its number when it is first sent, so a call that is given up before leaves no gap.
 * From then on it keeps it: `unanswered` holds it in order of number until its fate is known, and
 * what has to be sent again goes first. So a queue's messages are sent in the order of the calls,
 * and repeated in that order. A repeat that the server asked for (throttled, unavailable) blocks
 * its queue until it is due: only what was under way already can overtake it.
 */

import { Fifo } from "./fifo.js";
import type { Publication } from "./publication.js";
import { Table } from "./table.js";

/** One queue's outgoing messages. */
export class Outbox {
  /** Never sent, without a number. */
  readonly waiting = new Fifo<Publication>();
  /** Sent at least once, by number, in order. */
  readonly unanswered = new Table<Publication>();
  blockedUntil = 0;
  /** Sent before and to be sent again, in order of number; all of them in `unanswered` too. */
  private _repeats: Publication[] = [];
  private _oldest: number;

  constructor(
    readonly queue: string,
    public nextSeq: number,
  ) {
    this._oldest = nextSeq;
  }

  /** Nothing to send and nothing to wait for. */
  get isIdle(): boolean {
    return !(this.waiting.length || this.unanswered.size);
  }

  get hasMore(): boolean {
    return !!(this.waiting.length || this._repeats.length);
  }

  /** The next messages to send, and how many of them are new. */
  take(most: number, room: number, window: number): [batch: Publication[], fresh: number] {
    const batch: Publication[] = [];
    let left = room;
    let repeats = 0;
    for (const again of this._repeats) {
      if (batch.length >= most || again.cost > left) break;
      repeats += 1;
      if (again.isOver) continue;
      again.wasRepeated = true;
      left -= again.cost;
      batch.push(again);
    }
    this._repeats = this._repeats.slice(repeats);
    let fresh = 0;
    const last = this._oldestSeq() + window;
    while (!this._repeats.length && batch.length < most && this.nextSeq < last) {
      const next = this.waiting.first;
      if (!next || next.cost > left) break;
      this.waiting.shift();
      next.seq = this.nextSeq++;
      this.unanswered.add(next.seq, next);
      left -= next.cost;
      fresh += 1;
      batch.push(next);
    }
    return [batch, fresh];
  }

  private _oldestSeq(): number {
    while (this._oldest < this.nextSeq && !this.unanswered.get(this._oldest)) this._oldest += 1;
    return this._oldest;
  }

  /** Its fate is known. */
  finish(publication: Publication): void {
    publication.isOver = true;
    this.unanswered.delete(publication.seq);
  }

  /** Send these again, each at its place. */
  repeat(publications: Publication[]): void {
    this._repeats = [...this._repeats, ...publications].sort((a, b) => a.seq - b.seq);
  }

  /** The connection is gone: everything that was sent and not answered goes again. */
  repeatAll(): void {
    this._repeats = this.unanswered.values();
  }
}
