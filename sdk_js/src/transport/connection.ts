/** What the driver and its connections know of each other. */

import type { Loss } from "../core/shell.js";

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
