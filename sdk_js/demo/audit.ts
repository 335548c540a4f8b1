/**
 * Does the server have what the page thinks it has? Nothing may be lost, at any moment.
 *
 * The server counts what it stores; the page counts what was confirmed to it. Between the two are
 * requests on their way, so the page's counts are taken before and after the server is asked: what
 * the server says must lie between the least and the most that both allow.
 */

import type { Book } from "./book.js";

/** What the page knows at one moment. */
export interface Counts {
  published: number;
  sending: number;
  acked: number;
  acking: number;
}

export const countsOf = (book: Book): Counts => ({
  published: book.published,
  sending: book.counts.sending,
  acked: book.counts.acked,
  acking: book.acking,
});

/** `missing`: the server has fewer than it confirmed. `more`: others publish here, too. */
export type Verdict = "exact" | "agrees" | "missing" | "more";

export function judge(before: Counts, stored: number, after: Counts): Verdict {
  const least = before.published - after.acked - after.acking;
  const most = after.published + after.sending - before.acked;
  if (stored < least) return "missing";
  if (stored > most) return "more";
  return least === most ? "exact" : "agrees";
}

/** A verdict that has to be repeated before it counts: a message that moves to the dead letters, or
 * back, is for a moment in both places, or was just in neither when both were asked. */
export class Audit {
  verdict: Verdict | null = null;
  /** How often it was judged, and how often that was not in order three times in a row. */
  rounds = 0;
  alarms = 0;
  private doubtful = 0;

  add(found: Verdict): void {
    this.rounds += 1;
    const isFine = found === "exact" || found === "agrees";
    this.doubtful = isFine ? 0 : this.doubtful + 1;
    if (this.doubtful >= 3 && found === "missing") this.alarms += 1;
    if (isFine || this.doubtful >= 3) this.verdict = found;
  }
}
