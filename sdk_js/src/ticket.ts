/** Waiting for an outcome, with a signal that ends the wait. */

import type { Ticket } from "./core/effects.js";

/** What every call that waits takes. */
export interface Waiting {
  /** Ends the wait: the call rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/**
 * A promise of what `begin` starts. When the signal is aborted the promise rejects with its reason,
 * and `abandon` undoes what can be undone.
 */
export function outcome<T>(
  signal: AbortSignal | undefined,
  begin: (ticket: Ticket) => void,
  abandon?: (ticket: Ticket) => void,
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    if (!signal) {
      begin({ resolve: resolve as (value: unknown) => void, reject });
      return;
    }
    signal.throwIfAborted();
    const over = () => signal.removeEventListener("abort", stop);
    const ticket: Ticket = {
      resolve(value) {
        over();
        resolve(value as T);
      },
      reject(error) {
        over();
        reject(error);
      },
    };
    const stop = () => {
      ticket.reject(signal.reason);
      abandon?.(ticket);
    };
    signal.addEventListener("abort", stop);
    try {
      begin(ticket);
    } catch (fault) {
      ticket.reject(fault);
    }
  });
}
