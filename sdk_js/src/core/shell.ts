/** The core's other side: who carries out what it wants, and tells it what happened. */

import type { PushlaneError } from "../wire/errors.js";
import type { Transport, Wish } from "./choice.js";
import type { Settings } from "./settings.js";

export type State = "connecting" | "open" | "polling" | "closed";

/** Who carries out what the core wants. Links are numbered from 1. */
export interface Shell {
  /** Get a token, open a connection, then say `connected` or `lost`. */
  dial(link: number, transport: Transport): void;
  /** Try whether a WebSocket can be had, up to its welcome, and say `probed`. */
  probe(link: number): void;
  send(link: number, text: string): void;
  /** Close the connection with this code (within a bounded time) and forget it. */
  hangUp(link: number, code: number): void;
  /** The client's public state; `closed` is final, with the error that led to it, if any. */
  changed(state: State, error: PushlaneError | null): void;
}

/** The end of a connection, or of an attempt at one, as a transport tells of it. */
export interface Loss {
  code?: number;
  reason?: string;
  /** Where more is known. */
  error?: PushlaneError | undefined;
  /** The HTTP status in place of an upgrade, NO_ANSWER for none; undefined: it was not asked
   * for. */
  refused?: number | undefined;
}

export interface CoreOptions {
  producer: string;
  random: () => number;
  settings: Settings;
  name?: string | undefined;
  transport?: Wish;
}
