/** How long something is repeated that was throttled or unavailable. */

import { isRepeated, type PushlaneError } from "../wire/errors.js";
import { backoffMs } from "./backoff.js";
import type { Settings } from "./settings.js";

/** The failures in a row of one thing. */
export class Patience {
  private _failures = 0;
  private _since: number | null = null;

  constructor(
    private _settings: Settings,
    private _random: () => number,
  ) {}

  /** When to try again; null when its time is up or it makes no sense. */
  retryAt(error: PushlaneError, now: number): number | null {
    const { retryBaseMs, retryMaxMs, retryMs } = this._settings;
    if (!isRepeated(error)) return null;
    this._since ??= now;
    const draw = () => backoffMs(retryBaseMs, retryMaxMs, this._failures, this._random());
    const at = now + (error.retryMs ?? draw());
    this._failures += 1;
    return at <= this._since + retryMs ? at : null;
  }
}
