/**
 * Which failures of a WebSocket say something about WebSockets.
 *
 * Browsers don't tell why a handshake failed. A server that answers over HTTP at the same time is
 * there: then something in between doesn't let WebSockets through. If it doesn't answer either,
 * the failure says nothing about them.
 */

import { NO_ANSWER } from "../core/choice.js";
import type { Loss } from "../core/loss.js";

const PROBE_MS = 3000;

/** What is known of a failed handshake, after a look. */
export async function look(loss: Loss, base: string): Promise<Loss> {
  if (loss.refused !== NO_ANSWER) return loss;
  try {
    // Whether it answers is all that counts, not what: so a page need not be allowed to read it.
    const signal = AbortSignal.timeout(PROBE_MS);
    await fetch(`${base}/healthz`, { mode: "no-cors", cache: "no-store", signal });
    return { ...loss, error: undefined };
  } catch {
    return { ...loss, refused: undefined };
  }
}
