/** Waiting for an outcome, with a signal that ends the wait. */

import type { Ticket } from "./core/line.js";

/** What every call that waits takes. */
export interface Waiting {
  /** Ends the wait: the call rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** Call `stop` when the signal is aborted, until the function that is returned is called. */
export function onAbort(signal: AbortSignal | undefined, stop: () => void): () => void {
  signal?.addEventListener("abort", stop);
  return () => signal?.removeEventListener("abort", stop);
}

/**
 * A promise of what `begin` starts. When the signal is aborted the promise rejects with its reason,
 * and `abandon` undoes what can be undone.
 */
export function outcome<T>(
  signal: AbortSignal | undefined,
  begin: (ticket: Ticket<T>) => void,
  abandon?: () => void,
): Promise<T> {
  let stop!: () => void;
  const promise = new Promise<T>((resolve, reject) => {
    stop = () => {
      reject(signal!.reason);
      abandon?.();
    };
    signal?.throwIfAborted();
    begin({ resolve, reject } as Ticket<T>);
  });
  if (signal) {
    const over = onAbort(signal, stop);
    promise.then(over, over);
  }
  return promise;
}
