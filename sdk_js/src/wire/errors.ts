/** Errors: one class with a code, and one for a connection that went before the answer came. */

import { RETRY, STATUS } from "./tables.js";

/** An error with a code for programs, a message for people, and perhaps when to try again. */
export class PushlaneError extends Error {
  override name = "PushlaneError";
  /** When to try again, in milliseconds; undefined where the server doesn't say. */
  readonly retryMs: number | undefined;

  constructor(
    readonly code: string,
    message: string,
    retryMs?: number | null,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.retryMs = retryMs ?? undefined;
  }
}

/** The connection went before the answer came: it may have happened. Its code is
 * `connection_lost`. */
export class ConnectionLost extends PushlaneError {
  override name = "ConnectionLost";

  constructor(message: string, retryMs?: number | null, options?: ErrorOptions) {
    super("connection_lost", message, retryMs, options);
  }
}

/** What is said of clients and subscriptions that are over. */
export const CLOSED = "closed";

export const badRequest = (message: string): PushlaneError =>
  new PushlaneError("bad_request", message);

export const leaseLost = (options?: ErrorOptions): PushlaneError =>
  new PushlaneError("lease_lost", "lease lost", null, options);

/** Whether repeating the same request can succeed. A code from a newer server may. */
export const canRetry = ({ code }: PushlaneError): boolean => !(STATUS[code]! < RETRY);

/** Whether the client repeats it without asking. Not so for a full queue: how long to wait there
 * is the caller's business. */
export const isRepeated = (error: PushlaneError): boolean =>
  canRetry(error) && error.code !== "queue_full" && error.code !== "connection_lost";

/** The error that a bare status stands for: a proxy has answers of its own. */
export const errorOfStatus = (status: number): PushlaneError =>
  new PushlaneError(
    Object.keys(STATUS).find((code) => STATUS[code] === status) ??
      (status > 500 ? "unavailable" : "bad_request"),
    `HTTP ${status}`,
  );
