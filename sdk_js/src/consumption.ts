/**
 * `Client.consume`: handlers for the messages of a queue, some of them at a time.
 *
 * A handler's message is acked when it returns and nacked when it throws, unless it settled it
 * itself; its lease is extended meanwhile. When the lease is lost the message's signal is aborted.
 * All messages that can begin in a turn are taken together, and their `start` leaves before their
 * handlers run.
 */

import type { Subscription } from "./core/subscription.js";
import type { Driver } from "./driver.js";
import { Message } from "./message.js";
import type { PushlaneError } from "./wire/errors.js";

/** What is called with each message. */
export type Handler<T = unknown> = (message: Message<T>) => unknown;

/** One call of consume. `over` resolves when it has ended, by whatever wish, and its last ack is
 * answered; it rejects when the server ended it. */
export function makeConsumption<T>(
  driver: Driver,
  handler: Handler<T>,
  concurrency: number,
  onFault: (error: unknown, message: Message<T>) => void,
) {
  const { core, hungry, now, soon } = driver;
  let running = 0;
  let isGone = false;
  let isStopping = false;
  let fault: PushlaneError | null = null;
  let tellIfOver!: () => void;
  const over = new Promise<void>((resolve, reject) => {
    tellIfOver = () => {
      if (!isGone || running) return;
      if (fault) reject(fault);
      else resolve();
    };
  });

  function take(): void {
    const taken: Message<T>[] = [];
    const at = now();
    while (running < concurrency) {
      const lease = core.take(taker._core, at);
      if (!lease) break;
      const message = new Message<T>(lease, driver);
      message._begin(at);
      running += 1;
      taken.push(message);
    }
    // Handlers are called after this turn, in which the start of their messages leaves.
    queueMicrotask(() => taken.forEach(handle));
  }

  function handle(message: Message<T>): void {
    const done = () => finish(message);
    const fail = (error: unknown) => {
      if (!message.lost && !isStopping) onFault(error, message);
      finish(message, error ?? null);
    };
    if (message.lost || isStopping) return fail(null); // before it began
    try {
      const result = handler(message) as PromiseLike<unknown> | undefined;
      if (typeof result?.then === "function") result.then(done, fail);
      else done();
    } catch (error) {
      fail(error);
    }
  }

  function finish(message: Message<T>, error?: unknown): void {
    message._end(error, isStopping ? { delay_ms: 0 } : {});
    running -= 1;
    hungry.add(take);
    soon();
    tellIfOver();
  }

  const taker = {
    _core: undefined! as Subscription,
    over,
    /** Nothing more begins, and what runs is asked to stop. */
    stop(reason: unknown): void {
      isStopping = true;
      core.consumer.unsubscribe(taker._core);
      soon();
      for (const { owner } of taker._core.held()) owner?.cancel(reason);
    },
    onReady(): void {
      if (running < concurrency) hungry.add(take);
    },
    onEnded(error: PushlaneError | null): void {
      fault = error;
    },
    onGone(): void {
      isGone = true;
      tellIfOver();
    },
  };
  return taker;
}
