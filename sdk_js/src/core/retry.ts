/** Trying again: how long to wait, and for how long to go on. */

import { isRepeated, type PushlaneError } from "../wire/errors.js";
import type { Line } from "./line.js";

/** Exponential backoff with full jitter, before attempt n (from 0): clients that were cut off
 * together come back apart. `draw` is a random number in [0, 1). */
export const backoffMs = (base: number, most: number, attempt: number, draw: number): number =>
  draw * Math.min(most, base * 2 ** attempt);

/** The failures in a row of something that was throttled or unavailable. */
export class Patience {
  private _failures = 0;
  private _since: number | undefined;

  /** When to try again; undefined when its time is up or it makes no sense. */
  retryAt({ settings, random }: Line, error: PushlaneError, now: number): number | undefined {
    const { retryBaseMs, retryMaxMs, retryMs } = settings;
    if (!isRepeated(error)) return undefined;
    this._since ??= now;
    const wait = error.retryMs ?? backoffMs(retryBaseMs, retryMaxMs, this._failures, random());
    this._failures += 1;
    return now + wait <= this._since + retryMs ? now + wait : undefined;
  }
}
