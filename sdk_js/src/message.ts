/** A delivered message, and the ways to settle it. */

import { type Lease, Phase, type Worker } from "./core/lease.js";
import { ACK, type Kind, summary } from "./core/settler.js";
import type { Driver } from "./driver.js";
import { onAbort, outcome, type Waiting } from "./ticket.js";
import { leaseLost } from "./wire/errors.js";
import { camel, renamed } from "./wire/names.js";
import { fromBase64 } from "./wire/text.js";

/** Why a message became a dead letter, and where it came from. */
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
  /** The bytes that were published, if it was bytes. */
  readonly data: Uint8Array | null;
  /** Messages with the same key come in order, one at a time. */
  readonly key: string | null;
  /** The headers that were published; empty without any. */
  readonly headers: Record<string, string>;
  /** 1 for the first. */
  readonly attempt: number;
  /** Grows with every delivery of this message: hand it to your database, which can shut out an
   * older holder by it. null with `ack: "none"`. */
  readonly fence: number | null;
  /** When it was stored, in Unix milliseconds. */
  readonly publishedAt: number;
  /** In a dead-letter queue: why it is there, and where it came from. */
  readonly dead: Dead | null;
  private _abort: AbortController | undefined;

  /** @internal */
  constructor(
    private _lease: Lease,
    private _driver: Driver,
  ) {
    const { id, body, data, key, headers, attempt, fence, published_at, dead } = _lease.message;
    this.id = id;
    this.body = (body ?? null) as T;
    this.data = typeof data === "string" ? fromBase64(data) : null;
    this.key = key ?? null;
    this.headers = headers ?? {};
    this.attempt = attempt;
    this.fence = fence ?? null;
    this.publishedAt = published_at;
    this.dead = dead ? (renamed({ error: null, ...dead }, camel) as Dead) : null;
  }

  /** Whether the lease is lost: stop work, it will be delivered again, perhaps elsewhere. */
  get lost(): boolean {
    return this._lease.lost;
  }

  /** Aborted when the lease is lost, and when its `consume` or `run` is told to stop. */
  get signal(): AbortSignal {
    if (!this._abort) {
      this._abort = new AbortController();
      if (this.lost) this._abort.abort(leaseLost());
      else this._lease.owner ??= this;
    }
    return this._abort.signal;
  }

  /** Whether it was acked, nacked or rejected here, or lost. */
  get isSettled(): boolean {
    return this._lease.phase > Phase.Started;
  }

  /** It is done. Resolves when that is durable; `lease_lost` when it came too late. */
  ack({ signal }: Waiting = {}): Promise<void> {
    return this._settle(ACK, signal);
  }

  /** It failed: it comes again after the queue's backoff, or after `delayMs` (0: at once). `error`
   * is a text or an error, for whoever looks at the message later. */
  nack(
    error?: unknown,
    { delayMs, signal }: Waiting & { delayMs?: number | undefined } = {},
  ): Promise<void> {
    return this._settle(this._failure(error, { delay_ms: delayMs }), signal);
  }

  /** It can never succeed: to the dead letters. */
  reject(error?: unknown, { signal }: Waiting = {}): Promise<void> {
    return this._settle(this._failure(error, { dead: true }), signal);
  }

  /** The lease ends `leaseMs` from now. Handlers and `run` do that on their own. */
  extend(leaseMs: number, { signal }: Waiting = {}): Promise<void> {
    return this._settle({ op: "extend", lease_ms: leaseMs }, signal);
  }

  private _failure(error: unknown, how: Partial<Kind>): Kind {
    return { op: "nack", error: summary(error, this._driver.core), ...how };
  }

  private _settle(kind: Kind, signal: AbortSignal | undefined): Promise<void> {
    return outcome(signal, (ticket) => {
      this._driver.core.consumer.settler.settle(this._lease, kind, ticket);
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
    if (this.lost) throw leaseLost();
    const over = onAbort(signal, () => this.cancel(signal!.reason));
    this._begin(this._driver.now());
    let result: R;
    try {
      result = await work(this);
    } catch (error) {
      this._finish(error);
      if (!this.isSettled) await this.nack(error, signal?.aborted ? { delayMs: 0 } : {});
      throw error;
    } finally {
      over();
    }
    this._finish();
    if (!this.isSettled) await this.ack();
    return result;
  }

  /** @internal The core extends the lease, and tells us when it is lost. */
  _begin(now: number): void {
    this._lease.owner = this;
    this._driver.core.consumer.clocks.keep(this._lease, now);
  }

  private _finish(cause?: unknown): void {
    this._lease.keptUntil = 0;
    if (this.lost) throw leaseLost({ cause });
  }

  /** @internal The work is over: settle it, unless that has happened. */
  _end(error?: unknown, how: Partial<Kind> = {}): void {
    const { _lease: lease } = this;
    lease.keptUntil = 0;
    if (lease.phase !== Phase.Started) return;
    const kind = error === undefined ? ACK : this._failure(error, how);
    this._driver.core.consumer.settler.settle(lease, kind);
  }

  /** @internal The lease is lost, or somebody wants the work to stop. */
  cancel(reason: unknown = leaseLost()): void {
    this._abort ??= new AbortController();
    queueMicrotask(() => this._abort!.abort(reason)); // users may call back
  }
}
