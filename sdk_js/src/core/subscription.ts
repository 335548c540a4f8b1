/**
 * A subscription as the client sees it: wanted, live, on its way out, over.
 *
 * The server's number for it changes when a session can't be resumed; the subscription goes on.
 * What was delivered and is not settled is `held`; of that, what nobody has taken yet waits in
 * `ready`.
 */

import type { PushlaneError } from "../wire/errors.js";
import type { Ticket } from "./effects.js";
import { Fifo } from "./fifo.js";
import { Held } from "./held.js";
import type { Lease } from "./lease.js";
import type { Patience } from "./patience.js";
import type { Group } from "./settle.js";

export type AckMode = "explicit" | "none";

/** "wanted": to be asked for as soon as there is a connection. "leaving": closed on our side; the
 * server is told, or will be. */
export type Standing = "wanted" | "asked" | "live" | "leaving" | "over";

/** The owner of a subscription in the shell. */
export interface Taker {
  /** There are messages to take. */
  ready(): void;
  /** It is over: without an error because it was closed. */
  ended(error: PushlaneError | null): void;
}

export class Subscription {
  standing: Standing = "wanted";
  endTicket: Ticket | null = null;
  /** Who waits until the last settle of its messages is answered. */
  goneTicket: Ticket | null = null;
  number: number | null = null;
  readonly held = new Held();
  readonly ready = new Fifo<Lease>();
  /** Taken, and the server is not told yet. */
  starts: Lease[] = [];
  /** What to tell the server, by kind. */
  settles = new Map<string, Group>();
  isLeavingSaid = false;
  retryAt = 0;
  patience: Patience | null = null;
  /** Messages missed by a slow `ack: "none"` subscription. */
  dropped = 0;
  /** How many messages would be taken at once: polling asks for no more, since their leases run
   * from the delivery on. */
  wanted = 0;
  owner!: Taker;

  constructor(
    readonly queue: string,
    readonly credit: number,
    readonly ack: AckMode,
    readonly leaseMs: number | undefined,
    /** Who waits for it to begin; null afterwards. */
    public ticket: Ticket | null,
  ) {}
}
