/** What the parts of the core know of the whole: its bounds, and the way to the server. */

import type { PushlaneError } from "../wire/errors.js";
import type { Ack, ClientFrame, Extend, Nack, Publish, ServerFrame } from "../wire/frames.js";
import type { Subscribe, Unsubscribe } from "../wire/frames.js";
import type { Limits } from "../wire/limits.js";
import type { Settings } from "./settings.js";

/** Who waits for an outcome; told exactly once. */
export interface Ticket<T = unknown> {
  resolve(value?: T): void;
  reject(error: unknown): void;
}

type Unnumbered<F> = F extends unknown ? Omit<F, "id"> : never;
/** A frame that is answered. Messages of a publish are JSON text already. */
export type Question =
  Unnumbered<Subscribe | Ack | Nack | Extend | Unsubscribe> | Omit<Publish, "id" | "messages">;

/** Who waits for the answer to a frame. */
export interface Pending {
  onDone?(answer: ServerFrame, now: number): void;
  onRefused?(error: PushlaneError, now: number): void;
  /** The connection went before the answer came. */
  onGone?(): void;
}

export interface Line {
  readonly settings: Settings;
  readonly limits: Limits;
  readonly random: () => number;
  /** How many questions have no answer yet. */
  asking(): number;
  say(frame: ClientFrame): void;
  /** The same, with an id: `pending` hears of the answer. */
  ask(question: Question, pending: Pending, messages?: string[]): void;
}
