/**
 * The connection as a plan: when to dial, how long to wait, when to take it for dead.
 *
 * "idle" before the start, "waiting" for the time of the next attempt, "dialing" until the socket
 * is open, "greeting" until `welcome`, "open", and "closed" for ever. Each attempt has a number of
 * its own.
 */

import { DEFAULT_LIMITS } from "../wire/limits.js";
import { backoffMs } from "./backoff.js";
import { SILENCE, type Settings } from "./settings.js";

export type LinkPhase = "idle" | "waiting" | "dialing" | "greeting" | "open" | "closed";

/** Where we stand with the server, and until when. */
export class Link {
  phase: LinkPhase = "idle";
  number = 0;
  /** When the phase must end: the time to dial, or when to give the attempt up. */
  until: number | null = null;
  /** Failed attempts in a row. */
  attempt = 0;
  /** Only before the first welcome: when `connect` fails. */
  giveUpAt: number | null = null;
  /** 0: the server won't say anything unasked, and silence means nothing. */
  heartbeatMs = DEFAULT_LIMITS.heartbeat_ms;
  /** What a goaway said, for the next connection only. */
  reconnectMs: number | undefined;
  /** Whether the server said when to come back. */
  isTold = false;
  openedAt = 0;

  constructor(
    private _settings: Settings,
    private _random: () => number,
  ) {}

  get hasSocket(): boolean {
    return this.phase === "greeting" || this.phase === "open";
  }

  /** Begin an attempt. */
  dial(now: number, isUpgradeUnsure: boolean): number {
    const { dialMs, upgradeMs } = this._settings;
    this.phase = "dialing";
    this.until = now + (isUpgradeUnsure ? Math.min(dialMs, upgradeMs) : dialMs);
    this.reconnectMs = undefined;
    return ++this.number;
  }

  /** The server said welcome. */
  open(now: number, heartbeatMs: number): void {
    this.phase = "open";
    this.heartbeatMs = heartbeatMs;
    this.openedAt = now;
    this.giveUpAt = null;
    this.heard(now);
  }

  /** Something came from the server. */
  heard(now: number): void {
    if (this.phase !== "open") return;
    const silence = this.heartbeatMs * SILENCE;
    this.until = silence ? now + silence : null;
  }

  /** The connection or the attempt is lost: plan the next. */
  wait(now: number, retryMs: number | undefined): number {
    const { stableMs, backoffBaseMs, backoffMaxMs } = this._settings;
    if (this.phase === "open" && now - this.openedAt >= stableMs) this.attempt = 0;
    const told = retryMs ?? this.reconnectMs;
    this.isTold = told !== undefined;
    const delay = told ?? backoffMs(backoffBaseMs, backoffMaxMs, this.attempt, this._random());
    this.attempt += 1;
    this.phase = "waiting";
    return (this.until = now + delay);
  }

  /** There won't be another. */
  close(): void {
    this.phase = "closed";
    this.until = null;
  }
}
