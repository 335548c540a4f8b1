/** A message as the page knows it. */

/** `sending`: not answered yet. `retrying`: it waits for its next attempt. */
export type Place = "sending" | "waiting" | "retrying" | "held" | "dead" | "acked";

export interface Entry {
  readonly uid: string;
  readonly lane: string;
  /** null: somebody else published it. */
  readonly n: number | null;
  readonly bug: number;
  /** Published by this visit. */
  readonly isOurs: boolean;
  /** null until the server gave it one, and again when it is redriven. */
  id: string | null;
  /** All that it had. */
  readonly ids: string[];
  place: Place;
  /** Its place in its lane: where it was published, or redriven. */
  rank: number;
  isRedriven: boolean;
  /** The server has confirmed that it is stored, or has delivered it. */
  isStored: boolean;
  /** How its holder is settling it just now, or has tried to. */
  settling: "ack" | "nack" | null;
  /** Which consumer has it, or had it last. */
  holder: number | null;
  attempt: number;
  /** From when to when its lease runs, or its backoff. */
  from: number;
  until: number | null;
  error: string | null;
  /** Counts changes: an answer to a question that was asked before the last one is stale. */
  changes: number;
}

/** How it is called on the page. */
export const nameOf = ({ lane, n, uid }: Entry): string => `${lane} ${n ?? uid.slice(-6)}`;
