/** A subscription as an async iterator. */

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
  /** @internal */
  _core!: CoreSubscription;
  private _waiters = new Set<() => void>();
  /** Why it is over; null: it was closed. */
  private _end: PushlaneError | null | undefined;

  /** @internal */
  constructor(
    private _driver: Driver,
    private _over: () => void,
  ) {}

  /** Where its messages come from. */
  get queue(): string {
    return this._core.wanted.from;
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
      if (this._end) throw this._end;
      if (this._end === null) return { value: undefined, done: true };
      let wake!: () => void;
      await outcome<void>(
        signal,
        ({ resolve }) => this._waiters.add((wake = resolve)),
        () => this._waiters.delete(wake),
      );
    }
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
  onReady(): void {
    for (const wake of this._waiters) wake();
    this._waiters.clear();
  }

  /** @internal */
  onEnded(error: PushlaneError | null): void {
    this._end = error;
    this._over();
    this.onReady();
  }
}
