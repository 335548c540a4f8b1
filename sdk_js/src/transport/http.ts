/** Requests over HTTP, by fetch. */

import { onAbort } from "../ticket.js";
import { ConnectionLost, errorOfStatus, PushlaneError } from "../wire/errors.js";
import type { ErrorFrame } from "../wire/frames.js";
import { fromJson } from "../wire/text.js";

/**
 * What the server answers; throws the error it answers with, ConnectionLost where it doesn't, or
 * the signal's reason. Between us and the server may be a proxy with answers of its own: a status
 * without one of the server's errors still becomes the typed error that is nearest.
 */
export async function ask(
  method: string,
  url: string,
  body: string | undefined,
  token: string | undefined,
  timeoutMs: number,
  signal?: AbortSignal,
  headers: Record<string, string> = {},
): Promise<unknown> {
  signal?.throwIfAborted();
  const abort = new AbortController();
  const unlisten = onAbort(signal, () => abort.abort());
  const timer = setTimeout(
    () => abort.abort(new Error(`no answer within ${timeoutMs} ms`)),
    timeoutMs,
  );
  let answer: Response;
  let value: unknown;
  try {
    if (body) headers["Content-Type"] = "application/json";
    if (token) headers["Authorization"] = `Bearer ${token}`;
    answer = await fetch(url, {
      method, headers, body: body || null, signal: abort.signal, redirect: "error",
    }); // prettier-ignore
    value = fromJson(await answer.text());
  } catch (cause) {
    signal?.throwIfAborted();
    const { message } = ((cause as Error).cause ?? cause) as Error;
    throw new ConnectionLost(`no connection to ${url}: ${message}`, null, { cause });
  } finally {
    clearTimeout(timer);
    unlisten();
  }
  if (answer.ok) return value;
  const error = (value as { error?: ErrorFrame } | undefined)?.error;
  throw error?.code
    ? new PushlaneError(error.code, error.message, error.retry_ms)
    : errorOfStatus(answer.status);
}
