/** A subscription as an async iterator. */

import type { Ticket } from "./core/effects.js";
import type { Subscription as CoreSubscription, Taker } from "./core/subscription.js";
import type { Driver } from "./driver.js";
import { Message } from "./message.js";
import { outcome, type Waiting } from "./ticket.js";
import type { PushlaneError } from "./wire/errors.js";

/**
 * The messages of a queue, one after the other, until it is closed.
 *
 *     const subscription = await client.subscribe("orders");
 *     for await (const message of subscription) {
 *       await work(message.body);
 *       await message.ack();
 *     }
 *
 * Taking a message starts its lease. When the server ends the subscription (its queue is deleted,
 * say), the loop throws the error; when you close it or leave the loop, it ends.
 */
export class Subscription<T = unknown>
  implements AsyncIterableIterator<Message<T>, undefined, Waiting | undefined>, Taker
{
  private _waiters = new Set<Ticket>();
  private _isOver = false;
  private _tell: (() => void) | undefined;
  private _error: PushlaneError | null = null;

  /** @internal */
  constructor(
    private _driver: Driver,
    private _core: CoreSubscription,
  ) {}

  /** Where its messages come from. */
  get queue(): string {
    return this._core.queue;
  }

  /** How many messages an `ack: "none"` subscription missed because it read too slowly. */
  get dropped(): number {
    return this._core.dropped;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** The next message. With a `signal` that is aborted it rejects, and has taken none. */
  async next({ signal }: Waiting = {}): Promise<IteratorResult<Message<T>, undefined>> {
    const driver = this._driver;
    for (;;) {
      signal?.throwIfAborted();
      const lease = driver.core.take(this._core, driver.now());
      if (lease) {
        driver.run(); // its start must leave before any work on it begins
        return { value: new Message<T>(lease, driver), done: false };
      }
      if (this._error) throw this._error;
      if (this._isOver) return { value: undefined, done: true };
      await this._wait(signal);
    }
  }

  /** Until there may be something to take. */
  private async _wait(signal: AbortSignal | undefined): Promise<void> {
    this._want(1);
    try {
      await outcome(
        signal,
        (ticket) => this._waiters.add(ticket),
        (ticket) => this._waiters.delete(ticket),
      );
    } finally {
      this._want(-1);
    }
  }

  private _want(more: number): void {
    this._core.wanted += more;
    if (this._driver.core.state === "polling") this._driver.soon();
  }

  /** No more messages. What was not taken goes back at once; what was, can be settled. */
  close({ signal }: Waiting = {}): Promise<void> {
    return outcome(signal, (ticket) => {
      this._driver.core.consumer.unsubscribe(this._core, ticket);
      this._driver.soon();
    });
  }

  /** What a loop calls that is left early. */
  async return(): Promise<IteratorResult<Message<T>, undefined>> {
    await this.close();
    return { value: undefined, done: true };
  }

  /** @internal */
  ready(): void {
    const waiters = [...this._waiters];
    this._waiters.clear();
    for (const waiter of waiters) waiter.resolve();
  }

  /** @internal */
  ended(error: PushlaneError | null): void {
    this._isOver = true;
    this._error = error;
    this._tell?.();
    this.ready();
  }

  /** @internal */
  _whenOver(tell: () => void): void {
    if (this._isOver) tell();
    else this._tell = tell;
  }
}
