/**
 * Which transport a client has: WebSocket or, where that can't be had, polling over HTTP.
 *
 * "auto" tries a WebSocket first. A refusal in place of the upgrade means that something between us
 * and the server doesn't let it through: then it is polling. So it is after a few attempts in a row
 * that failed in the server or a proxy, were cut, or stood still before the welcome; and after a few
 * connections in a row that were cut while they were young, each replaced at once. Bad credentials
 * and a server that is busy or not there say nothing about WebSockets.
 *
 * While it polls, a WebSocket is probed from time to time, up to its welcome. When that works, the
 * client changes back.
 *
 * A change is planned (`next`) where the old transport still works: what was sent is answered first,
 * and what somebody works on is settled first, since neither publishes nor leases can move: the
 * server tells repeats by a session's numbers here and by dedup ids there, and a lease belongs to
 * its session. That gets a bounded time; if it does not suffice, all stays as it is until later.
 */

import { backoffMs } from "./backoff.js";
import type { Settings } from "./settings.js";

export type Transport = "ws" | "poll";
export type Wish = "auto" | Transport;

export const WISHES: readonly Wish[] = ["auto", "ws", "poll"];

/** In place of a status: the connection ended, or what came made no sense. */
export const NO_ANSWER = 0;
const NOT_ABOUT_US = [401, 403, 429, 503];
const SERVER_FAULT = 500;
/** The part of its time that a change from polling takes at least: messages may be on their way to a
 * receive, and when we cut it just then they come back only when their leases are over. */
const GRACE = 0.05;

/** What a client was told to use, and what it uses. */
export class Choice {
  transport: Transport;
  /** Whether a failed handshake can't change it any more, for as long as the connection lives. */
  isMade: boolean;
  /** When to probe a WebSocket. */
  probeAt = Infinity;
  /** What it is about to change to, and until when that may take. */
  next: Transport | null = null;
  nextBy = Infinity;
  /** No earlier than then; 0 when that has come. */
  nextAt = 0;
  private _isAuto: boolean;
  private _triesLeft: number;
  private _hasWorked = false;
  private _cuts = 0;
  private _probes = 0;

  constructor(
    wish: Wish,
    private _settings: Settings,
    private _random: () => number,
  ) {
    this._isAuto = wish === "auto";
    this._triesLeft = _settings.upgradeTries;
    this.transport = wish === "poll" ? "poll" : "ws";
    this.isMade = !this._isAuto;
  }

  get isPolling(): boolean {
    return this.transport === "poll";
  }

  /** A handshake failed with this status; whether it is polling from now on. */
  refused(status: number): boolean {
    if (this.isMade || NOT_ABOUT_US.includes(status)) return false;
    this._triesLeft -= 1;
    const isSure = !this._hasWorked && status > NO_ANSWER && status < SERVER_FAULT;
    if (!isSure && this._triesLeft > 0) return false;
    this.isMade = true;
    this.transport = "poll";
    return true;
  }

  /** Polling is refused for good: where WebSockets worked it is one again, for life. */
  repent(): boolean {
    if (!this.isPolling || !this._hasWorked) return false;
    this._isAuto = false;
    this.transport = "ws";
    return true;
  }

  /** It works, for now. */
  welcomed(now: number): void {
    this.isMade = true;
    if (!this._isAuto) return;
    this._triesLeft = this._settings.upgradeTries;
    this._hasWorked ||= !this.isPolling;
    if (this.isPolling) this._probeLater(now);
    else if (this._cuts >= this._settings.upgradeTries) this._plan("poll", now);
  }

  /** There is no connection: one that was cut when it was this old, or (null) none was had. */
  lost(ageMs: number | null): void {
    const isYoung = ageMs !== null && ageMs < this._settings.cutMs;
    this._cuts = isYoung && !this.isPolling ? this._cuts + 1 : 0;
    if (ageMs !== null && !isYoung) this._probes = 0;
    this.isMade = !this._isAuto || this.isPolling;
    this.next = null;
    this.nextAt = 0;
    this.nextBy = this.probeAt = Infinity;
  }

  /** What became of a probe. */
  probed(isGood: boolean, now: number): void {
    if (isGood) this._plan("ws", now);
    else this._probeLater(now);
  }

  private _plan(next: Transport, now: number): void {
    this.next = next;
    this.nextBy = now + this._settings.changeMs;
    this.nextAt = this.isPolling ? now + this._settings.changeMs * GRACE : 0;
  }

  /** It took too long: try again later. */
  stay(now: number): void {
    this.next = null;
    this.nextAt = 0;
    this.nextBy = Infinity;
    if (this.isPolling) this._probeLater(now);
  }

  private _probeLater(now: number): void {
    const { probeBaseMs, probeMaxMs } = this._settings;
    this.probeAt = now + backoffMs(probeBaseMs, probeMaxMs, this._probes++, this._random());
  }

  /** Do it. */
  change(): void {
    this.transport = this.next!;
    this.lost(null);
  }
}
