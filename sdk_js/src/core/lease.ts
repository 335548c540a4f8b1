/**
 * A delivered message and our right to it, from its delivery to its end.
 *
 * "reserved": delivered, nobody has taken it. "started": somebody works on it and the lease runs.
 * "settling": an ack or nack is on its way; the answer decides. "over": settled, given back, lost.
 */

import type { DeliverMessage } from "../wire/frames.js";
import type { Subscription } from "./subscription.js";

export type LeasePhase = "reserved" | "started" | "settling" | "over";

/** Who works on a message, as far as the core has to know. */
export interface Worker {
  /** The lease is lost: stop. */
  cancel(reason?: unknown): void;
}

/** One message in our hands. `owner` is the shell's. */
export class Lease {
  phase: LeasePhase = "reserved";
  lost = false;
  /** When it ends by our own clock, unless an extension is confirmed before; 0 before it was
   * taken. */
  deadline = 0;
  extendAt = 0;
  /** Whether its clock runs. */
  isRunning = false;
  /** It is extended on its own until then; null: nobody asked for that. */
  keptUntil: number | null = null;
  /** A settle of it was sent, and its answer is lost. */
  isUnknown = false;
  owner: Worker | null = null;
  readonly receipt: string;
  readonly prefix: string = "";
  readonly number: number = 0;

  constructor(
    readonly subscription: Subscription,
    readonly message: DeliverMessage,
  ) {
    const receipt = (this.receipt = message.receipt ?? "");
    const dot = receipt.lastIndexOf(".");
    if (dot > 0) {
      this.prefix = receipt.slice(0, dot);
      this.number = Number(receipt.slice(dot + 1));
    }
  }
}
