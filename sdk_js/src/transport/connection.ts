/** What the driver and its connections know of each other. */

import { NO_ANSWER } from "../core/choice.js";
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

/**
 * What can be found out about a handshake without an answer.
 *
 * Browsers don't tell why it failed. Over HTTP a server tells a page whose origin it refuses. If it
 * answers anything else at the same time it is there, so something in between doesn't let WebSockets
 * through. If it doesn't answer either, the failure says nothing about them. What it answers doesn't
 * matter then: so a page need not be allowed to read it. Nothing but the origin is looked at before
 * a GET of the pipe is refused, so it costs the server next to nothing.
 */
export async function look(base: string, loss: Loss, isChoosing: boolean): Promise<Loss> {
  const asked = ask("GET", `${base}/v1/pipe`, "", "", LOOK_MS) as Promise<PushlaneError>;
  const error = await asked.catch((cause: PushlaneError) => cause);
  if (error.code === "forbidden") return { error };
  if (!isChoosing) return loss;
  try {
    await fetch(`${base}/healthz`, { mode: "no-cors", signal: AbortSignal.timeout(LOOK_MS) });
    return { refused: NO_ANSWER };
  } catch {
    return { error: loss.error };
  }
}
