/**
 * Watches that messages with the same key come in the order in which they were published.
 *
 * Two things must hold. The first deliveries of a key count up without a gap. And while a message
 * is not over, none behind it is delivered: whoever looks finds suspects with `blockers`, and has
 * the server explain them before it calls that a fault.
 *
 * Only messages of this visit are looked at: who knows in which order others were published, or
 * redriven?
 */

import type { Entry } from "./entry.js";

export interface Fault {
  lane: string;
  n: number;
  why: string;
}

export class Order {
  readonly faults: Fault[] = [];
  /** How many first deliveries were looked at. */
  checked = 0;
  private next = new Map<string, number>();

  /** A message of a lane was delivered. */
  took(lane: string, n: number): void {
    const expected = this.next.get(lane) ?? 1;
    if (n < expected) return; // it comes again
    this.checked += 1;
    if (n > expected) this.fault(lane, n, `${expected} had not come yet`);
    this.next.set(lane, n + 1);
  }

  fault(lane: string, n: number, why: string): void {
    this.faults.push({ lane, n, why });
  }
}

/** Those before it in its lane that should have been over when it was delivered. */
export function blockers(lane: Iterable<Entry>, taken: Entry, mostAttempts: number): Entry[] {
  if (taken.isRedriven) return [];
  return [...lane].filter(
    (entry) =>
      entry.rank < taken.rank &&
      entry.isOurs &&
      entry.id !== null &&
      !entry.isRedriven &&
      entry.place !== "dead" &&
      entry.settling !== "ack" &&
      !(entry.settling === "nack" && entry.attempt >= mostAttempts),
  );
}
