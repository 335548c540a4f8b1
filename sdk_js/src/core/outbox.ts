/**
 * The messages of one queue on their way out, in order, and their sequence numbers.
 *
 * A message gets its number when it is first sent, so a call that is given up before leaves no gap.
 * From then on it keeps it: `sent` holds it in order of number until its fate is known, and
 * what has to be sent again goes first. So a queue's messages are sent in the order of the calls,
 * and repeated in that order. A repeat that the server asked for (throttled, unavailable) blocks
 * its queue until it is due: only what was under way already can overtake it.
 *
 * A sequence counts one queue's messages, whatever else the client sends.
 */

import type { Publication } from "./publication.js";
import { Table } from "./table.js";

/** One queue's outgoing messages. */
export class Outbox {
  /** Never sent, without a number. */
  readonly waiting: Publication[] = [];
  /** Sent at least once and not answered, by number, in order. */
  readonly sent = new Table<Publication>();
  blockedUntil = 0;
  /** Sent before and to be sent again, in order of number; all of them in `sent` too. */
  repeats: Publication[] = [];
  /** No smaller number is unanswered. */
  oldest: number;

  constructor(
    readonly queue: string,
    public nextSeq: number,
  ) {
    this.oldest = nextSeq;
  }

  /** Nothing to send and nothing to wait for. */
  get isIdle(): boolean {
    return !(this.waiting.length || this.sent.count);
  }
}
