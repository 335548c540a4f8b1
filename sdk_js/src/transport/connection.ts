/** What the driver and its connections know of each other. */

import type { Loss } from "../core/loss.js";
import type { OutFrame } from "../core/frame.js";

/** One link to the server, whatever carries it. */
export interface Connection {
  /** Send a frame, at the next `write` at the latest. */
  send(frame: OutFrame): void;
  /** A turn is over. */
  write(): void;
  /** End it: with 1000 what was said last still goes out, within a bounded time. */
  hangUp(code: number): void;
}

/** Who hears of what happens to a connection. */
export interface Listener {
  onOpen(link: number): void;
  onHeard(link: number, frames: unknown[]): void;
  /** Once, and nothing after it. */
  onLost(link: number, loss: Loss): void;
}
