/**
 * Settles: ack, nack and extend, gathered by kind and sent as runs of receipts.
 *
 * A turn's acks of a subscription leave in one frame, and since most messages are settled in the
 * order of their delivery the frame names most of them as one run, `P.N-M`.
 */

import type { Ack, Extend, Nack } from "../wire/frames.js";
import { compress } from "../wire/receipts.js";
import type { Ticket } from "./effects.js";
import type { Lease } from "./lease.js";
import type { Subscription } from "./subscription.js";

export type SettleFrame = Ack | Nack | Extend;

/** What settles of one frame have in common; the fields are those of the frame. */
export interface Kind {
  readonly op: "ack" | "nack" | "extend";
  readonly delay_ms?: number;
  readonly error?: string;
  readonly dead?: true;
  readonly lease_ms?: number;
}

/** A lease, and who waits for the answer (null: nobody). */
export type Entry = [lease: Lease, ticket: Ticket | null];

/** Settles of one kind that wait to be sent. */
export interface Group {
  kind: Kind;
  entries: Entry[];
}

export const ACK: Kind = { op: "ack" };
/** For what was never started: it goes back at once, and no attempt is counted. */
export const GIVE_BACK: Kind = { op: "nack", delay_ms: 0 };

/** Settles of one kind on their way. */
export interface Settle extends Group {
  subscription: Subscription;
}

/** What two kinds have in common when they are the same. */
export const kindKey = (kind: Kind): string => (kind === ACK ? "ack" : JSON.stringify(kind));

/** The frame that says so. */
export const frameOf = (sub: number, { kind, entries }: Group, id: number): SettleFrame =>
  ({ ...kind, sub, receipts: runs(entries.map(([lease]) => lease)), id }) as SettleFrame;

/** The fewest receipts that name these leases. */
export function runs(leases: Iterable<Lease>): string[] {
  const numbers = new Map<string, number[]>();
  for (const { prefix, number } of leases) {
    const found = numbers.get(prefix);
    if (found) found.push(number);
    else numbers.set(prefix, [number]);
  }
  return [...numbers].flatMap(([prefix, counts]) => compress(prefix, ascending(counts)));
}

/** Each number once, in order: most often they are that already. */
function ascending(numbers: number[]): number[] {
  const isSorted = numbers.every((number, at) => !at || number > numbers[at - 1]!);
  return isSorted ? numbers : [...new Set(numbers)].sort((a, b) => a - b);
}
