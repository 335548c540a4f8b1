/** A delivered message and our right to it, from its delivery to its end. */

import type { DeliverMessage } from "../wire/frames.js";
import { compress, parse } from "../wire/receipts.js";
import type { Subscription } from "./subscription.js";

export const enum Phase {
  /** Delivered, nobody has taken it. */
  Reserved,
  /** Somebody works on it, and the lease runs. */
  Started,
  /** An ack or nack is on its way; the answer decides. */
  Settling,
  /** Settled, given back, lost. */
  Over,
}

/** Who works on a message, as far as the core has to know. */
export interface Worker {
  /** The lease is lost: stop. */
  cancel(reason?: unknown): void;
}

/** One message in our hands. `owner` is the shell's. */
export class Lease {
  phase = Phase.Reserved;
  lost = false;
  /** When it ends by our own clock, unless an extension is confirmed before; 0 before it was
   * taken. */
  deadline = 0;
  extendAt = 0;
  /** It is extended on its own until then; 0: nobody asked for that. */
  keptUntil = 0;
  /** A settle of it was sent, and its answer is lost. */
  isUnknown = false;
  owner: Worker | undefined;
  /** Empty where there is no lease, with ack "none". */
  readonly prefix: string;
  readonly place: number;
  readonly receipt: string;
  readonly spanMs: number;

  constructor(
    readonly source: Subscription,
    readonly message: DeliverMessage,
  ) {
    this.receipt = message.receipt ?? "";
    this.spanMs = message.lease_ms!;
    [this.prefix, this.place] = parse(this.receipt);
  }
}

/** The fewest receipts that name these leases. */
export function runs(leases: Lease[]): string[] {
  const places = new Map<string, number[]>();
  for (const { prefix, place } of leases) {
    const found = places.get(prefix);
    if (found) found.push(place);
    else places.set(prefix, [place]);
  }
  return [...places].flatMap(([prefix, found]) =>
    compress(
      prefix,
      found.sort((a, b) => a - b),
    ),
  );
}
