/**
 * A message on its way out: made from what the caller gave, checked before it is taken in.
 *
 * Publishes of independent callers share a frame, and a mistake in form refuses a whole frame. So
 * each message is checked alone, as the server would, before it can harm others. It is encoded at
 * the call: what the caller changes afterwards no longer matters.
 */

import { badRequest, PushlaneError } from "../wire/errors.js";
import type { Limits } from "../wire/tables.js";
import { byteLength, checkPairs, toBase64, toJson } from "../wire/text.js";
import type { Ticket } from "./effects.js";
import { checkOptions, checkRange } from "./options.js";
import type { Patience } from "./patience.js";

/** More than the op, the id and the name of a frame can take. */
export const FRAME_OVERHEAD = 1024;
/** More than a message's number can take, or the dedup id that is made of it. */
const MESSAGE_OVERHEAD = 128;

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
    checkOptions("Item", options, ["body", ...OPTIONS]);
    this.body = options.body;
  }
}

/** What became of one message of `publishMany`: an id, or an error.
 *
 * `duplicate`: its dedup id was known, and this is the id of the first one. When the connection was
 * lost in between that can't be told from a repeat of ours, and is false. */
export interface Published {
  id: string | null;
  duplicate: boolean;
  error: PushlaneError | null;
}

export const OPTIONS = [
  "data", "key", "dedup", "priority", "delayMs", "ttlMs", "headers", "eventAt",
] as const; // prettier-ignore

/** For a message that has nothing but its body. */
export const NONE: MessageOptions = Object.freeze({});

/** One message that waits to be sent or answered. */
export class Publication {
  /** Its JSON, but for what is added when it is sent: without the closing brace. */
  readonly text: string;
  /** At least the bytes that it takes in a frame. */
  readonly cost: number;
  seq = 0;
  calledAt = 0;
  wasRepeated = false;
  patience: Patience | undefined;
  isOver = false;
  private _bytes: number;

  /** Throws `bad_request` for what JSON can't hold. */
  constructor(
    body: unknown,
    readonly options: MessageOptions,
    readonly ticket: Ticket,
  ) {
    const { data } = options;
    if ((body === undefined) === (data === undefined)) {
      throw badRequest("body or data is needed, exactly one of them");
    }
    const text = data === undefined ? toJson(body) : `"${toBase64(bytesOf(data))}"`;
    const size = byteLength(text);
    this._bytes = data === undefined ? size : data.byteLength;
    const rest = options === NONE ? "" : restOf(options);
    this.text = `{"${data === undefined ? "body" : "data"}":${text}${rest}`;
    checkPairs(this.text);
    this.cost = size + byteLength(rest) + MESSAGE_OVERHEAD;
  }

  /** Throws `bad_request` or `too_large`, as the server would. */
  check(limits: Limits): void {
    const { key, dedup, priority, delayMs, ttlMs, headers, eventAt } = this.options;
    checkText("key", key, limits.key_bytes);
    checkText("dedup", dedup, limits.dedup_bytes);
    checkRange("priority", priority, 0, limits.priority_max);
    checkRange("delayMs", delayMs, 0, limits.delay_ms_max);
    checkRange("ttlMs", ttlMs, 1, limits.ttl_ms_max);
    checkRange("eventAt", eventAt, 0, Number.MAX_SAFE_INTEGER);
    if (headers !== undefined) checkHeaders(headers, limits.header_bytes);
    if (key !== undefined && (priority ?? delayMs) !== undefined) {
      throw badRequest("key goes with neither priority nor delayMs: they break its order");
    }
    tooLarge(this._bytes, limits.message_bytes);
    tooLarge(this.cost, limits.frame_bytes - FRAME_OVERHEAD);
  }
}

/** The fields of a message besides its body. */
function restOf({
  key,
  dedup,
  priority,
  delayMs,
  ttlMs,
  headers,
  eventAt,
}: MessageOptions): string {
  const text = JSON.stringify({
    key, dedup, priority, delay_ms: delayMs, ttl_ms: ttlMs, headers, event_at: eventAt,
  }); // prettier-ignore
  return text === "{}" ? "" : `,${text.slice(1, -1)}`;
}

function tooLarge(size: number, most: number): void {
  if (size > most) throw new PushlaneError("too_large", `${size} bytes: at most ${most}`);
}

function bytesOf(data: Uint8Array | ArrayBuffer | ArrayBufferView): Uint8Array {
  if (ArrayBuffer.isView(data)) {
    return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  }
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  throw badRequest("data is no Uint8Array or ArrayBuffer");
}

function checkText(name: string, value: unknown, most: number): void {
  if (value === undefined) return;
  const size = typeof value === "string" ? byteLength(value) : NaN;
  if (!(size >= 1 && size <= most)) throw badRequest(`${name} is no text of 1 to ${most} bytes`);
}

function checkHeaders(headers: object, most: number): void {
  const texts = headers === null ? [0] : Object.entries(headers).flat();
  if (texts.some((text) => typeof text !== "string")) {
    throw badRequest("headers is no object of strings to strings");
  }
  const size = texts.reduce((sum, text) => sum + byteLength(text as string), 0);
  if (size > most) throw badRequest(`headers has ${size} bytes: at most ${most}`);
}
