/** What the page and a consumer (a worker with a connection of its own) write to each other. */

export const MODES = ["works", "slow", "fails", "hangs"] as const;
/** `works` is quick; `slow` takes longer than a lease and extends it; `fails` throws; `hangs` does
 * nothing at all, until its lease is gone. */
export type Mode = (typeof MODES)[number];

/** The body of a message. */
export interface Job {
  /** Which message it is, whatever its id: a redriven one has a new id. */
  uid: string;
  /** Its place among the messages of its lane, from 1. */
  n: number;
  /** Nobody can do this one until the bug with this number is fixed. */
  bug?: number;
}

export interface Begin {
  is: "begin";
  url: string;
  queue: string;
  name: string;
  credit: number;
  leaseMs: number;
  workMs: number;
  mode: Mode;
  fixed: number;
}

export type ToConsumer =
  | Begin
  | { is: "mode"; mode: Mode }
  /** All bugs up to this one are fixed. */
  | { is: "fixed"; bug: number };

export interface Taken {
  is: "took";
  id: string;
  uid: string;
  key: string | null;
  /** null: somebody else published it. */
  n: number | null;
  attempt: number;
}

export type FromConsumer =
  | { is: "state"; state: string }
  | Taken
  | { is: "extended"; id: string }
  /** Said before the server hears it. */
  | { is: "settling"; id: string; how: "ack" | "nack" }
  | { is: "acked"; id: string }
  | { is: "failed"; id: string; error: string }
  /** The lease is lost, or the answer to its settling is. */
  | { is: "lost"; id: string };
