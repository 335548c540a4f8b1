/**
 * A polled subscription: receives one after the other, for as long as somebody wants messages.
 *
 * The first receive waits for nothing: its answer says whether the queue may be consumed at all.
 * Later ones wait on the server. One that fails for now is asked again with backoff; one that is
 * refused ends the subscription.
 *
 * With ack "none" messages are settled before they are handed on: each receive is followed by an
 * ack, and only what that confirms is delivered.
 */

import { canRetry, internal, type PushlaneError } from "../wire/errors.js";
import type { DeliverMessage, ServerFrame, Subscribe } from "../wire/frames.js";
import { expand } from "../wire/receipts.js";
import type { Limits } from "../wire/tables.js";
import { type Answer, errorOf } from "./answer.js";
import { backoffMs } from "./backoff.js";
import { type Call, post, queuePath } from "./calls.js";
import { errorFrame } from "./lane.js";
import type { Settings } from "./settings.js";

/** The part of its time that a receive without a message must at least have waited: else somebody
 * in between cuts it short, and asking at once would be a busy loop. */
const SOON = 0.5;
/** No proxy finds a request silent for too long before. */
const PATIENCE_MS = 1000;

/** One subscription and its request, if one is under way. */
export class Polled {
  hasBegun = false;
  isOver = false;
  request: number | null = null;
  retryAt = 0;
  private _failures = 0;
  private _askedAt = 0;
  private _waitMs = 0;
  /** With ack "none": received, and not known to be settled yet. */
  private _unconfirmed: DeliverMessage[] = [];

  constructor(
    private _frame: Subscribe,
    readonly number: number,
    private _settings: Settings,
    private _random: () => number,
  ) {}

  get queue(): string {
    return this._frame.from;
  }

  /** Whether the next request, or the one under way, is an ack. */
  get isSettling(): boolean {
    return this._unconfirmed.length > 0;
  }

  get timeoutMs(): number {
    return this._settings.httpMs + this._waitMs;
  }

  /** The next request. */
  call(room: number, { batch }: Limits, now: number): Call {
    this._askedAt = now;
    if (this.isSettling) {
      this._waitMs = 0;
      const receipts = this._unconfirmed.map(({ receipt }) => receipt);
      return post(queuePath(this.queue, "ack"), { receipts });
    }
    this._waitMs = this.hasBegun ? this._settings.pollWaitMs : 0;
    return post(queuePath(this.queue, "receive"), {
      max: Math.max(1, Math.min(room, batch)),
      wait_ms: this._waitMs,
      lease_ms: this._frame.lease_ms,
    });
  }

  /** What the client is told of it. */
  answered(answer: Answer, now: number): ServerFrame[] {
    this.request = null;
    const error = errorOf(answer);
    const value = (answer.value ?? {}) as {
      messages?: DeliverMessage[];
      lease_lost?: string[];
    };
    if (!error && this.isSettling) return this._confirmed(value.lease_lost ?? []);
    if (!error && Array.isArray(value.messages)) return this._received(value.messages, now);
    return this.refused(error ?? internal("the answer makes no sense"), now);
  }

  private _received(messages: DeliverMessage[], now: number): ServerFrame[] {
    const found: ServerFrame[] = [];
    if (!this.hasBegun) {
      this.hasBegun = true;
      found.push({ op: "subscribed", id: this._frame.id, sub: this.number });
    }
    if (!messages.length && now - this._askedAt < this._waitMs * SOON) {
      this._wait(undefined, now);
      return found;
    }
    this._failures = 0;
    if (this._frame.ack === "none") this._unconfirmed = messages;
    else if (messages.length) found.push({ op: "deliver", sub: this.number, messages });
    return found;
  }

  private _confirmed(leaseLost: string[]): ServerFrame[] {
    const lost = new Set(expand(leaseLost));
    const messages = this._unconfirmed
      .filter(({ receipt }) => !lost.has(receipt!))
      .map((message) => ({ ...message, receipt: null, fence: null, lease_ms: null }));
    this._unconfirmed = [];
    this._failures = 0;
    return messages.length ? [{ op: "deliver", sub: this.number, messages }] : [];
  }

  /** Ask again if that makes sense, else it is over. */
  refused(error: PushlaneError, now: number): ServerFrame[] {
    this.request = null;
    if (this.hasBegun && canRetry(error)) {
      this._wait(error.retryMs, now);
      return [];
    }
    this.isOver = true;
    const { code, message } = error;
    return this.hasBegun
      ? [{ op: "ended", sub: this.number, code, message }]
      : [errorFrame(error, this._frame.id)];
  }

  /** Whether a lost connection may be a proxy's that found it silent for too long. */
  wasCut(now: number): boolean {
    return this.hasBegun && !this.isSettling && now - this._askedAt >= PATIENCE_MS;
  }

  private _wait(retryMs: number | undefined, now: number): void {
    const { retryBaseMs, retryMaxMs } = this._settings;
    const wait = retryMs ?? backoffMs(retryBaseMs, retryMaxMs, this._failures, this._random());
    this._failures += 1;
    this.retryAt = now + wait;
  }
}
