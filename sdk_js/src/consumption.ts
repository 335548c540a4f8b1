/**
 * `Client.consume`: handlers for the messages of a queue, some of them at a time.
 *
 * A handler's message is acked when it returns and nacked when it throws, unless it settled it
 * itself; its lease is extended meanwhile. When the lease is lost the message's signal is aborted.
 * All messages that can begin in a turn are taken together, and their `start` leaves before their
 * handlers run.
 */

import type { Lease } from "./core/lease.js";
import { ACK, type Kind } from "./core/settle.js";
import type { Subscription, Taker } from "./core/subscription.js";
import * as verdict from "./core/verdict.js";
import type { Driver } from "./driver.js";
import { Message } from "./message.js";
import type { PushlaneError } from "./wire/errors.js";

/** What is called with each message. */
export type Handler<T = unknown> = (message: Message<T>) => unknown;

/** One call of consume. */
export class Consumption<T> implements Taker {
  /** Resolves when it has ended, by whatever wish, and its last ack is answered; rejects when the
   * server ended it. */
  readonly over: Promise<void>;
  private _running = 0;
  private _isGone = false;
  private _isStopping = false;
  private _error: PushlaneError | null = null;
  private _tell!: () => void;

  constructor(
    private _driver: Driver,
    private _core: Subscription,
    private _handler: Handler<T>,
    private _concurrency: number,
    private _onFault: (error: unknown, message: Message<T>) => void,
  ) {
    _core.wanted = _concurrency;
    this.over = new Promise((resolve, reject) => {
      this._tell = () => {
        if (!this._isGone || this._running) return;
        if (this._error) reject(this._error);
        else resolve();
      };
    });
    const gone = () => {
      this._isGone = true;
      this._tell();
    };
    _core.goneTicket = { resolve: gone, reject: gone };
  }

  /** Nothing more begins, and what runs is asked to stop. */
  stop(reason: unknown): void {
    this._isStopping = true;
    this._driver.core.consumer.unsubscribe(this._core);
    this._driver.soon();
    for (const { owner } of this._core.held.values()) owner?.cancel(reason);
  }

  ready(): void {
    if (this._running < this._concurrency) this._driver.hungry.add(this._take);
  }

  ended(error: PushlaneError | null): void {
    this._error = error;
  }

  private _take = (): void => {
    const driver = this._driver;
    const now = driver.now();
    const taken: [Lease, Message<T>][] = [];
    while (this._running < this._concurrency) {
      const lease = driver.core.take(this._core, now);
      if (!lease) break;
      const message = new Message<T>(lease, driver);
      message._begin();
      this._running += 1;
      taken.push([lease, message]);
    }
    // Handlers are called after this turn, in which the start of their messages leaves.
    queueMicrotask(() => {
      for (const [lease, message] of taken) this._handle(lease, message);
    });
    this._core.wanted = this._concurrency - this._running;
  };

  private _handle(lease: Lease, message: Message<T>): void {
    const fail = (error: unknown) => {
      const { limits } = this._driver.core;
      const kind = verdict.nack(error, this._isStopping ? 0 : undefined, limits);
      if (!lease.lost && !this._isStopping) this._onFault(error, message);
      this._finish(lease, message, kind);
    };
    try {
      const result = this._handler(message) as PromiseLike<unknown> | undefined;
      if (typeof result?.then !== "function") this._finish(lease, message, ACK);
      else result.then(() => this._finish(lease, message, ACK), fail);
    } catch (error) {
      fail(error);
    }
  }

  private _finish(lease: Lease, message: Message<T>, kind: Kind): void {
    const driver = this._driver;
    lease.keptUntil = null;
    if (lease.prefix && !message.isSettled) driver.core.settle(lease, kind);
    this._running -= 1;
    driver.hungry.add(this._take);
    driver.soon();
    this._tell();
  }
}
