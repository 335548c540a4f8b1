/**
 * Lanes: frames of one kind for one queue, as HTTP requests one after the other.
 *
 * Requests have connections of their own and may overtake each other; a queue's publishes must not,
 * nor must a settle overtake another of the same message. So each has a lane, with one request
 * under way at a time. What gathers behind it leaves together in the next.
 */

import { internal, type PushlaneError } from "../wire/errors.js";
import type { ErrorFrame, Failed, ServerFrame } from "../wire/frames.js";
import { parse } from "../wire/receipts.js";
import type { Limits } from "../wire/tables.js";
import { type Answer, errorOf } from "./answer.js";
import { type Call, post, queuePath } from "./calls.js";
import type { PublishFrame } from "./frame.js";
import { FRAME_OVERHEAD, type Publication } from "./publication.js";
import type { SettleFrame } from "./settle.js";

/** Frames that wait, and those whose request is under way. */
export abstract class Lane<F extends PublishFrame | SettleFrame> {
  waiting: F[] = [];
  asked: F[] = [];

  constructor(protected _queue: string) {}

  get isIdle(): boolean {
    return !(this.waiting.length || this.asked.length);
  }

  /** The next request: it takes what goes together from `waiting` to `asked`. */
  abstract call(limits: Limits): Call;

  /** The answers to those frames that have an id; undefined when the answer makes no sense. */
  protected abstract _good(answer: Answer, asked: F[]): ServerFrame[] | undefined;

  /** What the server says to each frame of the request. */
  answers(answer: Answer): ServerFrame[] {
    const { asked } = this;
    this.asked = [];
    const good = this._good(answer, asked);
    return good ?? errorFrames(errorOf(answer) ?? internal("the answer makes no sense"), asked);
  }

  /** Nothing of it can be sent. */
  refuse(error: PushlaneError): ServerFrame[] {
    const all = [...this.asked, ...this.waiting];
    this.asked = [];
    this.waiting = [];
    return errorFrames(error, all);
  }
}

/** Publishes. The sequence numbers of frames become dedup ids, where the caller gave none. */
export class PublishLane extends Lane<PublishFrame> {
  constructor(
    queue: string,
    private _producer: string,
  ) {
    super(queue);
  }

  call({ batch, frame_bytes }: Limits): Call {
    let count = 0;
    let size = 0;
    let frames = 0;
    for (const { messages } of this.waiting) {
      count += messages.length;
      size += messages.reduce((sum, { cost }) => sum + cost, 0);
      if (frames && (count > batch || size > frame_bytes - FRAME_OVERHEAD)) break;
      frames += 1;
    }
    const target = queuePath(this._queue, "messages");
    this.asked = this.waiting.splice(0, frames);
    const texts = this.asked.flatMap(({ messages }) => messages.map((one) => this._named(one)));
    return { method: "POST", target, body: `{"messages":[${texts.join()}]}` };
  }

  private _named({ text, seq, options }: Publication): string {
    return options.dedup === undefined ? `${text},"dedup":"${this._producer}:${seq}"}` : `${text}}`;
  }

  protected _good(answer: Answer, asked: PublishFrame[]): ServerFrame[] | undefined {
    const value = (answer.value ?? {}) as {
      ids?: (string | null)[];
      duplicates?: number[];
      failed?: Failed[];
    };
    const isGood = !errorOf(answer);
    const { duplicates = [], failed = [] } = value;
    if (!(isGood ? Array.isArray(value.ids) : failed.length)) return undefined;
    let start = 0;
    return asked.map(({ id, messages }) => {
      const from = start;
      start += messages.length;
      const isOurs = (index: number) => index >= from && index < start;
      return {
        op: "published",
        id,
        // An error's answer may say what became of each message.
        ids: isGood ? value.ids!.slice(from, start) : messages.map(() => null),
        duplicates: duplicates.filter(isOurs).map((index) => index - from),
        failed: failed
          .filter(({ index }) => isOurs(index))
          .map((one) => ({ ...one, index: one.index - from })),
      };
    });
  }
}

/** Acks, nacks and extensions: those of one kind go together. */
export class SettleLane extends Lane<SettleFrame> {
  call({ settle }: Limits): Call {
    const [first] = this.waiting as [SettleFrame];
    const options = optionsOf(first);
    const target = queuePath(this._queue, first.op);
    const receipts: string[] = [];
    let count = 0;
    let frames = 0;
    for (const frame of this.waiting) {
      if (frame.op !== first.op || optionsOf(frame) !== options) break;
      for (const receipt of frame.receipts) {
        const [, low, high] = parse(receipt);
        count += high - low + 1;
      }
      if (frames && count > settle) break;
      frames += 1;
      receipts.push(...frame.receipts);
    }
    this.asked = this.waiting.splice(0, frames);
    return post(target, { receipts, ...(JSON.parse(options) as object) });
  }

  /** Each gets all that is listed: what is not its own means nothing to it. */
  protected _good(answer: Answer, asked: SettleFrame[]): ServerFrame[] | undefined {
    if (errorOf(answer)) return undefined;
    const { lease_lost = [] } = (answer.value ?? {}) as { lease_lost?: string[] };
    return asked.flatMap(({ id }) => (id ? { op: "done" as const, id, lease_lost } : []));
  }
}

/** What a settle says besides its receipts. */
const optionsOf = (frame: SettleFrame): string =>
  JSON.stringify({ ...frame, op: undefined, sub: undefined, id: undefined, receipts: undefined });

export const errorFrame = (error: PushlaneError, id?: number | null): ErrorFrame => ({
  op: "error",
  code: error.code,
  message: error.message,
  retry_ms: error.retryMs ?? null,
  id: id ?? null,
});

const errorFrames = (error: PushlaneError, frames: (PublishFrame | SettleFrame)[]): ServerFrame[] =>
  frames.flatMap(({ id }) => (id ? errorFrame(error, id) : []));
