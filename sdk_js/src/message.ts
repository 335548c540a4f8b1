/** A delivered message, and the ways to settle it. */

import type { Lease, Worker } from "./core/lease.js";
import { ACK, type Kind } from "./core/settle.js";
import * as verdict from "./core/verdict.js";
import type { Driver } from "./driver.js";
import { outcome, type Waiting } from "./ticket.js";
import { leaseLost } from "./wire/errors.js";
import { fromBase64 } from "./wire/text.js";

/** Why and whence a message came to the dead letters. */
export interface Dead {
  cause: string;
  queue: string;
  id: string;
  attempts: number;
  deadAt: number;
  error: string | null;
}

/**
 * A message in your hands.
 *
 * Settle it with `ack`, `nack` or `reject`, or let `run` do that: it acks when the function is
 * done, nacks when it throws, and extends the lease meanwhile, for at most an hour.
 *
 *     for await (const message of subscription) {
 *       await message.run(() => work(message.body));
 *     }
 */
export class Message<T = unknown> implements Worker {
  /** The same in every delivery. */
  readonly id: string;
  /** The JSON value that was published; null also for a message of bytes (see `data`). */
  readonly body: T;
  private _data: Uint8Array | null | undefined;
  private _abort: AbortController | undefined;

  /** @internal */
  constructor(
    private _lease: Lease,
    private _driver: Driver,
  ) {
    this.id = _lease.message.id;
    this.body = (_lease.message.body ?? null) as T;
  }

  /** The bytes that were published, if it was bytes. */
  get data(): Uint8Array | null {
    const { data } = this._lease.message;
    this._data ??= typeof data === "string" ? fromBase64(data) : null;
    return this._data;
  }

  /** Messages with the same key come in order, one at a time. */
  get key(): string | null {
    return this._lease.message.key ?? null;
  }

  /** The headers that were published; empty without any. */
  get headers(): Record<string, string> {
    return this._lease.message.headers ?? {};
  }

  /** 1 for the first. */
  get attempt(): number {
    return this._lease.message.attempt;
  }

  /** Grows with every delivery of this message: hand it to your database, which can shut out an
   * older holder by it. null with `ack: "none"`. */
  get fence(): number | null {
    return this._lease.message.fence ?? null;
  }

  /** When it was stored, in Unix milliseconds. */
  get publishedAt(): number {
    return this._lease.message.published_at;
  }

  /** Why and whence it came, in a queue of dead letters. */
  get dead(): Dead | null {
    const dead = this._lease.message.dead;
    if (!dead) return null;
    const { cause, queue, id, attempts, dead_at, error } = dead;
    return { cause, queue, id, attempts, deadAt: dead_at, error: error ?? null };
  }

  /** Whether the lease is lost: stop work, it will be delivered again, perhaps elsewhere. */
  get lost(): boolean {
    return this._lease.lost;
  }

  /** Aborted when the lease is lost, and when its `consume` or `run` is told to stop. */
  get signal(): AbortSignal {
    if (!this._abort) {
      this._abort = new AbortController();
      if (this.lost) this.cancel();
      else this._lease.owner ??= this;
    }
    return this._abort.signal;
  }

  /** Whether it was acked, nacked or rejected here, or lost. */
  get isSettled(): boolean {
    return this._lease.phase === "settling" || this._lease.phase === "over";
  }

  /** It is done. Resolves when that is durable; `lease_lost` when it came too late. */
  ack({ signal }: Waiting = {}): Promise<void> {
    return this._settle(() => ACK, signal);
  }

  /** It failed: it comes again after the queue's backoff, or after `delayMs` (0: at once). `error`
   * is a text or an error, for whoever looks at the message later. */
  nack(
    error?: unknown,
    { delayMs, signal }: Waiting & { delayMs?: number | undefined } = {},
  ): Promise<void> {
    return this._settle(() => verdict.nack(error, delayMs, this._driver.core.limits), signal);
  }

  /** It can never succeed: to the dead letters. */
  reject(error?: unknown, { signal }: Waiting = {}): Promise<void> {
    return this._settle(() => verdict.reject(error, this._driver.core.limits), signal);
  }

  /** The lease ends `leaseMs` from now. Handlers and `run` do that on their own. */
  extend(leaseMs: number, { signal }: Waiting = {}): Promise<void> {
    return this._settle(() => verdict.extend(leaseMs, this._driver.core.limits), signal);
  }

  private _settle(kind: () => Kind, signal: AbortSignal | undefined): Promise<void> {
    return outcome(signal, (ticket) => {
      this._driver.core.settle(this._lease, kind(), ticket);
      this._driver.soon();
    });
  }

  /**
   * Work on it: acks when `work` is done, nacks when it throws (and throws the same), extends the
   * lease meanwhile. Its result is that of `work`. When the lease is lost the message's `signal` is
   * aborted, and `lease_lost` thrown in the end. An aborted `signal` asks the work to stop through
   * the message's; what throws then goes back at once.
   */
  async run<R>(work: (message: this) => R | Promise<R>, { signal }: Waiting = {}): Promise<R> {
    signal?.throwIfAborted();
    if (this.lost) throw leaseLost("the lease was lost before the work began");
    const stop = () => this.cancel(signal?.reason);
    signal?.addEventListener("abort", stop);
    this._begin();
    let result: R;
    try {
      result = await work(this);
    } catch (error) {
      this._finish(error);
      if (!this.isSettled) await this.nack(error, signal?.aborted ? { delayMs: 0 } : {});
      throw error;
    } finally {
      signal?.removeEventListener("abort", stop);
    }
    this._finish();
    if (!this.isSettled) await this.ack();
    return result;
  }

  /** @internal The core extends the lease, and tells us when it is lost. */
  _begin(): void {
    this._lease.owner = this;
    this._driver.core.keep(this._lease, this._driver.now());
  }

  private _finish(cause?: unknown): void {
    this._lease.keptUntil = null;
    if (this.lost) throw leaseLost("the lease was lost during the work", { cause });
  }

  /** @internal The lease is lost, or somebody wants the work to stop. */
  cancel(reason: unknown = leaseLost("the lease was lost during the work")): void {
    this._abort ??= new AbortController();
    this._abort.abort(reason);
  }
}
