/**
 * A message on its way out: made from what the caller gave.
 *
 * It is encoded at the call: what the caller changes afterwards no longer matters. What is wrong
 * with it otherwise the server says.
 */

import { badRequest, type PushlaneError } from "../wire/errors.js";
import { renamed, snake } from "../wire/names.js";
import { byteLength, toBase64, toJson } from "../wire/text.js";
import type { Ticket } from "./line.js";
import type { Patience } from "./retry.js";
import { refuse } from "./settings.js";

/** More than a message's number and braces can take. */
const MESSAGE_OVERHEAD = 64;
/** Texts that can't have more bytes than this are not counted: that makes a buffer of each. */
const SURELY_SMALL = 1e4;

/** What a message may have besides its body. */
export interface MessageOptions {
  /** Bytes in place of a body. */
  data?: Uint8Array | ArrayBuffer | ArrayBufferView | undefined;
  /** Messages with the same key are delivered in order, one at a time. */
  key?: string | undefined;
  /** An id of yours: within the queue's window it is stored once. */
  dedup?: string | undefined;
  /** 0 to 9, higher first, 4 unless given. */
  priority?: number | undefined;
  /** Deliver no earlier than this. */
  delayMs?: number | undefined;
  /** When nobody took it for this long, it goes to the dead letters. */
  ttlMs?: number | undefined;
  /** For what is not the body: strings to strings. */
  headers?: Readonly<Record<string, string>> | undefined;
  /** When it happened, in Unix milliseconds, for queues that order by time. */
  eventAt?: number | undefined;
}

/** A message with options, for `publishMany`. */
export class Item {
  readonly body?: unknown;
  constructor(readonly options: MessageOptions & { body?: unknown }) {
    this.body = options.body;
  }
}

/** What became of one message of `publishMany`: an id, or an error.
 *
 * `duplicate`: its dedup id was known, and this is the id of the first one. When the connection was
 * lost in between that can't be told from a repeat of ours, and is false. A duplicate without an id
 * and without an error is stored, too: an earlier try of ours did that, so long ago that the server
 * no longer knows which id it got. */
export interface Published {
  id: string | null;
  duplicate: boolean;
  error: PushlaneError | null;
}

const SEQ = '"seq":';

/** For a message that has nothing but its body. */
export const NONE: MessageOptions = {};

/** One message that waits to be sent or answered. */
export class Publication {
  /** Its JSON but for the braces, up to its number. */
  readonly text: string;
  /** At least the bytes that it takes in a frame. */
  readonly cost: number;
  seq = 0;
  calledAt = 0;
  wasRepeated = false;
  /** A frame with this and others was refused: the next has nothing else. */
  isAlone = false;
  isOver = false;
  patience: Patience | undefined;

  /** Throws `bad_request` for what JSON can't hold. */
  constructor(
    body: unknown,
    readonly options: MessageOptions & { body?: unknown; signal?: AbortSignal | undefined },
    readonly ticket: Ticket<Published>,
  ) {
    const start = body === undefined ? "" : `"body":${toJson(body)},`;
    this.text = start + (options === NONE ? SEQ : fieldsOf(options));
    const most = 3 * this.text.length;
    this.cost = MESSAGE_OVERHEAD + (most < SURELY_SMALL ? most : byteLength(this.text));
  }
}

const OPTIONS: Record<keyof Omit<MessageOptions, "data">, 0> = {
  key: 0, dedup: 0, priority: 0, delayMs: 0, ttlMs: 0, headers: 0, eventAt: 0,
}; // prettier-ignore

/** The fields of a message besides its body. */
function fieldsOf(options: Publication["options"]): string {
  const { data, body, signal, ...rest } = options;
  refuse(rest, OPTIONS);
  const wire = renamed(rest, snake) as object;
  return toJson({ data: data && toBase64(bytesOf(data)), ...wire, seq: 0 }).slice(1, -2);
}

function bytesOf(data: Uint8Array | ArrayBuffer | ArrayBufferView): Uint8Array {
  if (ArrayBuffer.isView(data)) {
    return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  }
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  throw badRequest("no bytes");
}
