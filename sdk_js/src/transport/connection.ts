/** What the driver and its connections know of each other. */

import type { Loss } from "../core/shell.js";
import type { PushlaneError } from "../wire/errors.js";
import { ask } from "./http.js";

/** One link to the server, whatever carries it. */
export interface Connection {
  /** Send a frame. */
  send(text: string): void;
  /** End it, within a bounded time; what was said before still goes out. */
  hangUp(code: number): void;
  /** How it ended. */
  readonly over: Promise<Loss>;
}

/** Who hears of what happens to a connection. */
export interface Listener {
  onOpen(): void;
  onHeard(frames: unknown[]): void;
}

const LOOK_MS = 3000;
const FORBIDDEN = 403;

/**
 * The error that pages of this origin get from this server, if it refuses them.
 *
 * Of a refused handshake a browser only says that it failed. Over HTTP the server tells a page why.
 */
export async function refusal(base: string): Promise<Loss | undefined> {
  try {
    await ask("GET", `${base}/v1/limits`, undefined, undefined, LOOK_MS);
  } catch (cause) {
    const error = cause as PushlaneError;
    if (error.code === "forbidden") return { refused: FORBIDDEN, error };
  }
  return undefined;
}

/**
 * What a handshake without an answer says of WebSockets.
 *
 * Browsers don't tell why it failed. A server that answers over HTTP at the same time is there: then
 * something in between doesn't let WebSockets through. If it doesn't answer either, the failure says
 * nothing about them. What it answers doesn't matter: so a page need not be allowed to read it.
 */
export async function look(base: string, { refused, error }: Loss): Promise<Loss> {
  try {
    const signal = AbortSignal.timeout(LOOK_MS);
    await fetch(`${base}/healthz`, { mode: "no-cors", signal });
    return { refused };
  } catch {
    return { error };
  }
}
