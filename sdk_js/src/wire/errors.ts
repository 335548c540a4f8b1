/** Errors: one class with a code, and one for a connection that went before the answer came. */

import { ERRORS, type ErrorRow } from "./tables.js";

/** An error with a code for programs, a message for people, and perhaps when to try again. */
export class PushlaneError extends Error {
  override name = "PushlaneError";

  constructor(
    readonly code: string,
    message: string,
    /** When to try again, in milliseconds; undefined where the server doesn't say. */
    readonly retryMs?: number,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The connection went before the answer came: it may have happened. Its code is
 * `connection_lost`. */
export class ConnectionLost extends PushlaneError {
  override name = "ConnectionLost";

  constructor(message: string, retryMs?: number, options?: ErrorOptions) {
    super("connection_lost", message, retryMs, options);
  }
}

export const badRequest = (message: string, options?: ErrorOptions): PushlaneError =>
  new PushlaneError("bad_request", message, undefined, options);

export const internal = (message: string): PushlaneError => new PushlaneError("internal", message);

export const leaseLost = (message: string, options?: ErrorOptions): PushlaneError =>
  new PushlaneError("lease_lost", message, undefined, options);

/** The error that a frame or an answer tells of. */
export const errorFor = (code: string, message: string, retryMs?: number | null): PushlaneError =>
  new PushlaneError(code, message, retryMs ?? undefined);

/** What the table says of an error; a code from a newer server counts as `internal`. */
const rowOf = (error: PushlaneError): ErrorRow => ERRORS[error.code] ?? ERRORS["internal"]!;

/** Whether repeating the same request can succeed. */
export const canRetry = (error: PushlaneError): boolean => rowOf(error)[2];

/** The close code of an error that always ends its session. */
export const closeCodeOf = (error: PushlaneError): number | null => rowOf(error)[1];

const LEFT_TO_CALLERS = ["queue_full", "connection_lost"];

/** Whether the client repeats it without asking. Not so for a full queue: how long to wait there
 * is the caller's business. */
export const isRepeated = (error: PushlaneError): boolean =>
  canRetry(error) && !LEFT_TO_CALLERS.includes(error.code);

/** The code that stands for an HTTP status; undefined when none does. */
export const codeOfStatus = (status: number): string | undefined =>
  Object.keys(ERRORS).find((code) => ERRORS[code]![0] === status);
