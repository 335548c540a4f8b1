/**
 * A subscription as the client sees it: wanted, live, on its way out, over.
 *
 * The server's number for it changes when a session can't be resumed; the subscription goes on.
 * What was delivered and is not settled is held; of that, what nobody has taken yet waits in
 * `untaken`.
 */

import type { PushlaneError } from "../wire/errors.js";
import type { Lease } from "./lease.js";
import type { Ticket } from "./line.js";
import type { Patience } from "./retry.js";
import type { Group } from "./settler.js";
import { Table } from "./table.js";

export type AckMode = "explicit" | "none";

export const enum Standing {
  /** To be asked for as soon as there is a connection. */
  Wanted,
  Live,
  /** The server is asked for it. */
  Asked,
  /** Closed on our side; the server is to be told. */
  Leaving,
  /** It is told. */
  Parting,
  Over,
}

/** The owner of a subscription in the shell. */
export interface Taker {
  /** There are messages to take. */
  onReady(): void;
  /** It is over: without an error because it was closed. */
  onEnded(error: PushlaneError | null): void;
  /** The last settle of its messages is answered, too. */
  onGone?(): void;
}

/** What is asked for. */
export interface Wanted {
  from: string;
  credit: number;
  ack?: AckMode | undefined;
  lease_ms?: number | undefined;
}

export class Subscription {
  standing = Standing.Wanted;
  endTicket: Ticket | undefined;
  sub: number | undefined;
  untaken: Lease[] = [];
  /** Taken, and the server is not told yet. */
  starts: Lease[] = [];
  /** What to tell the server, by kind. */
  settles = new Map<string, Group>();
  retryAt = 0;
  patience: Patience | undefined;
  /** Messages missed by a slow `ack: "none"` subscription. */
  dropped = 0;
  owner!: Taker;
  /** By prefix, of which there is one for each shard: few, and they stay. */
  private _held: Record<string, Table<Lease>> = {};

  constructor(
    readonly wanted: Wanted,
    /** Who waits for it to begin. */
    public ticket: Ticket | undefined,
  ) {}

  /** All that is not settled yet. */
  held(): Lease[] {
    return Object.values(this._held).flatMap((table) => table.all());
  }

  /** Put it in; false when it is there already. */
  hold(lease: Lease): boolean {
    const table = (this._held[lease.prefix] ??= new Table());
    const isNew = !table.find(lease.place);
    if (isNew) table.put(lease.place, lease);
    return isNew;
  }

  release({ prefix, place }: Lease): void {
    this._held[prefix]?.drop(place);
  }
}
