/** Exponential backoff with full jitter: clients that were cut off together come back apart. */

const MOST_DOUBLINGS = 52;

/** How long to wait before attempt n (from 0); `draw` is a random number in [0, 1). */
export const backoffMs = (base: number, most: number, attempt: number, draw: number): number =>
  draw * Math.min(most, base * 2 ** Math.min(attempt, MOST_DOUBLINGS));
