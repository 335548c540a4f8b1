/**
 * A link of polling: to the driver it is a connection like a WebSocket.
 *
 * `Poll` decides which requests there are; they end with the link. A server or a proxy may close an
 * idle connection just when a request goes out on it, and fetch doesn't tell: so one that fails at
 * once goes out once more. That does no harm: everything that polling asks for may be repeated.
 */

import type { Answer } from "../core/answer.js";
import type { OutFrame } from "../core/frame.js";
import type { Ask, Poll } from "../core/poll.js";
import { ConnectionLost, type PushlaneError } from "../wire/errors.js";
import type { Connection, Listener } from "./connection.js";
import { ask as askHttp } from "./http.js";

const AT_ONCE_MS = 1000;

/** The requests of one link. */
export class Poller implements Connection {
  private _aborts = new Map<number, AbortController>();
  private _isLeaving = false;
  private _isOver = false;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _lastCall: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private _link: number,
    private _poll: Poll,
    private _base: string,
    private _listener: Listener,
    private _hangupMs: number,
    private _now: () => number,
  ) {}

  send(frame: OutFrame): void {
    if (!this._isOver) this._poll.send(frame);
  }

  /** Make the requests that are due. */
  write(): void {
    if (this._isOver) return;
    const poll = this._poll;
    poll.flush(this._now());
    for (const number of poll.drops.splice(0)) this._aborts.get(number)?.abort();
    for (const ask of poll.asks.splice(0)) void this._ask(ask);
    this._tell();
    this._setTimer();
  }

  /** Give the core what came: before the next requests, which depend on it. */
  private _tell(): void {
    const { fault, frames, isIdle } = this._poll;
    if (fault) this._end(fault);
    else if (frames.length) this._listener.onHeard(this._link, frames.splice(0));
    else if (this._isLeaving && isIdle) this._end();
  }

  /** With 1000 what was said last is still sent, within a bounded time. */
  hangUp(code: number): void {
    if (code !== 1000 || !this._poll.isOpen) {
      this._end();
    } else if (!this._isOver) {
      this._isLeaving = true;
      this._poll.leave();
      this._lastCall = setTimeout(() => this._end(), this._hangupMs);
    }
  }

  private async _ask(ask: Ask): Promise<void> {
    const abort = new AbortController();
    this._aborts.set(ask.number, abort);
    try {
      const answer = await this._askTwice(ask, abort.signal);
      if (!this._isOver) this._poll.answered(ask.number, answer, this._now());
    } catch (fault) {
      // Our own abort was the poll's or the link's wish, and nobody waits for it.
      if (!this._isOver && !abort.signal.aborted) {
        this._poll.failed(ask.number, fault as PushlaneError, this._now());
      }
    }
    this._aborts.delete(ask.number);
    if (this._isOver) return;
    // With frames the core has a turn, and we with it.
    if (this._poll.frames.length) this._tell();
    else this.write();
  }

  private async _askTwice(ask: Ask, signal: AbortSignal): Promise<Answer> {
    const { call, token, timeoutMs } = ask;
    const since = this._now();
    try {
      return await askHttp(this._base, call, token, timeoutMs, signal);
    } catch (fault) {
      const isLost = fault instanceof ConnectionLost && this._now() - since < AT_ONCE_MS;
      if (!isLost) throw fault;
      return askHttp(this._base, call, token, timeoutMs, signal);
    }
  }

  private _setTimer(): void {
    clearTimeout(this._timer);
    const now = this._now();
    const at = this._isOver ? null : this._poll.wakeAt(now);
    if (at !== null) this._timer = setTimeout(() => this.write(), at - now);
  }

  private _end(error?: PushlaneError): void {
    if (this._isOver) return;
    this._isOver = true;
    this._poll.reset();
    clearTimeout(this._timer);
    clearTimeout(this._lastCall);
    for (const abort of this._aborts.values()) abort.abort();
    this._listener.onLost(this._link, { error });
  }
}
