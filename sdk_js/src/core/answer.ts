/**
 * What an HTTP answer says: its object, or the error that it stands for.
 *
 * Between us and the server may be a proxy with answers of its own: a status without one of the
 * server's error objects still becomes the typed error that is nearest.
 */

import { codeOfStatus, errorFor, type PushlaneError } from "../wire/errors.js";

/** A whole answer; `value` is undefined where it is no JSON. */
export interface Answer {
  status: number;
  value: unknown;
}

/** What went wrong; undefined when nothing did. */
export function errorOf({ status, value }: Answer): PushlaneError | undefined {
  if (status >= 200 && status < 300) return undefined;
  const error = (value as { error?: Record<string, unknown> } | undefined)?.error;
  if (typeof error?.["code"] === "string") {
    const retryMs = error["retry_ms"];
    const message = String(error["message"] ?? "");
    return errorFor(error["code"], message, typeof retryMs === "number" ? retryMs : null);
  }
  return errorOfStatus(status);
}

/** The error that a bare status stands for. */
export const errorOfStatus = (status: number): PushlaneError =>
  errorFor(
    codeOfStatus(status) ?? (status > 500 ? "unavailable" : "bad_request"),
    `the server answered HTTP ${status}`,
  );
