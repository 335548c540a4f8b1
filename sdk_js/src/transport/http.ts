/** Requests of the HTTP API, by fetch. */

import { type Answer, errorOf } from "../core/answer.js";
import type { Call } from "../core/calls.js";
import { ConnectionLost } from "../wire/errors.js";

/** Make a request; throws ConnectionLost, or the signal's reason. */
export async function ask(
  base: string,
  { method, target, body }: Call,
  token: string | undefined,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<Answer> {
  signal?.throwIfAborted();
  const abort = new AbortController();
  const stop = () => abort.abort();
  const timer = setTimeout(stop, timeoutMs);
  signal?.addEventListener("abort", stop);
  try {
    const headers: Record<string, string> = { Accept: "application/json" };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (token) headers["Authorization"] = `Bearer ${token}`;
    const answer = await fetch(base + target, {
      method, headers, body: body ?? null, signal: abort.signal, cache: "no-store",
      credentials: "omit", redirect: "error",
    }); // prettier-ignore
    const text = await answer.text();
    return { status: answer.status, value: parse(text) };
  } catch (fault) {
    signal?.throwIfAborted();
    const { message, cause } = fault as Error;
    const why = abort.signal.aborted
      ? `no answer within ${timeoutMs} ms`
      : `no connection to ${base}: ${(cause as Error | undefined)?.message ?? message}`;
    throw new ConnectionLost(why, undefined, { cause: fault });
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
  }
}

/** What the server answered; throws the error it answered with. */
export function valueOf(answer: Answer): unknown {
  const error = errorOf(answer);
  if (error) throw error;
  return answer.value;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
