/**
 * What the core wants done. The shell carries effects out in order.
 *
 * `link` numbers the connections of a client from 1: what a shell reports of an older one is
 * ignored. A ticket is the caller's way to hear of the outcome; the core hands it back exactly
 * once, in a resolve or a reject.
 */

import type { PushlaneError } from "../wire/errors.js";
import type { Transport } from "./choice.js";
import type { OutFrame } from "./frame.js";
import type { Lease } from "./lease.js";
import type { Subscription } from "./subscription.js";

export type State = "connecting" | "open" | "polling" | "closed";

/** Who waits for an outcome. */
export interface Ticket {
  resolve(value?: unknown): void;
  reject(error: unknown): void;
}

export type Effect =
  /** Get a token, open a connection, then say `connected` or `lost`. With "poll" there is nothing
   * to open: requests go out one by one. */
  | { kind: "dial"; link: number; transport: Transport }
  /** Try whether a WebSocket can be had, up to its welcome, and say `probed`. */
  | { kind: "probe"; link: number }
  /** Write a frame. */
  | { kind: "send"; link: number; frame: OutFrame }
  /** Close the connection with this code (within a bounded time) and forget it. */
  | { kind: "hangup"; link: number; code: number }
  | { kind: "resolve"; ticket: Ticket; value?: unknown }
  | { kind: "reject"; ticket: Ticket; error: PushlaneError }
  /** A subscription has messages to take. */
  | { kind: "ready"; subscription: Subscription }
  /** The lease of a message in somebody's hands is over: cancel the work. */
  | { kind: "lost"; lease: Lease }
  /** A subscription is over: without an error because it was closed. */
  | { kind: "ended"; subscription: Subscription; error: PushlaneError | null }
  /** The client's public state; `closed` is final, with the error that led to it, if any. */
  | { kind: "state"; state: State; error: PushlaneError | null };
