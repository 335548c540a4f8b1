/** `Client.queues`: making, changing and looking at queues, over HTTP. */

import { type Call, get, post, query, queuePath } from "./core/calls.js";
import type { Waiting } from "./ticket.js";
import type {
  Explanation,
  PeekAnswer,
  QueueBody,
  QueueChanges,
  QueueObject,
  QueuePage,
  RedriveAnswer,
  RedriveBody,
  Stats,
} from "./wire/queues.js";

/** Messages that one request redrives at most: so its answer says how far it got. */
const REDRIVE_MAX = 10_000;

/** A part of a list. */
export interface PageOptions {
  limit?: number | undefined;
  /** Where the page before ended. */
  after?: string | undefined;
}

const pageOf = ({ limit, after }: PageOptions) => query({ limit, after });

type Ask = (call: Call, signal: AbortSignal | undefined) => Promise<unknown>;

/**
 * The queues of the server.
 *
 *     await client.queues.create("orders", { maxAttempts: 3 });
 *     (await client.queues.stats("orders")).ready;
 *
 * What the HTTP API calls `max_attempts` is `maxAttempts` here; errors are the same as everywhere.
 */
export class Queues {
  /** @internal */
  constructor(private _ask: Ask) {}

  private async _call<T>(call: Call, { signal }: Waiting = {}): Promise<T> {
    return camel((await this._ask(call, signal)) ?? {}) as T;
  }

  private _post<T>(name: string, verb: string, body: object, options?: Waiting): Promise<T> {
    return this._call<T>(post(queuePath(name, verb), body), options);
  }

  private _put<T>(method: string, name: string, body: object, options?: Waiting): Promise<T> {
    return this._call<T>({ ...post(queuePath(name), snake(body)), method }, options);
  }

  private _get<T>(target: string, options?: Waiting): Promise<T> {
    return this._call<T>(get(target), options);
  }

  /** Make a queue, or replace its configuration; what is not given gets its default. */
  async create(name: string, config: QueueBody = {}, options?: Waiting): Promise<QueueObject> {
    return this._put("PUT", name, config, options);
  }

  /** A queue's configuration; `not_found` when there is none. */
  async get(name: string, options?: Waiting): Promise<QueueObject> {
    return this._get(queuePath(name), options);
  }

  /** Change some of a queue's configuration; null brings a default back. */
  async update(name: string, changes: QueueChanges, options?: Waiting): Promise<QueueObject> {
    return this._put("PATCH", name, changes, options);
  }

  /** Delete a queue with all its messages. */
  async delete(name: string, options?: Waiting): Promise<void> {
    const target = queuePath(name) + query({ confirm: name });
    await this._call({ method: "DELETE", target }, options);
  }

  /** A page of queues in order of name, those behind `after`. */
  async list(options: Waiting & PageOptions = {}): Promise<QueuePage> {
    return this._get(`/v1/queues${pageOf(options)}`, options);
  }

  /** How many messages are ready, leased, delayed, … */
  async stats(name: string, options?: Waiting): Promise<Stats> {
    return this._get(queuePath(name, "stats"), options);
  }

  /** Look at the next messages without taking them. The answer's `next`, if there is one, is the
   * `after` of the next page. */
  async peek(name: string, options: Waiting & PageOptions = {}): Promise<PeekAnswer> {
    return this._get(queuePath(name, "peek") + pageOf(options), options);
  }

  /** Drop all messages that nobody holds. */
  async purge(name: string, options?: Waiting): Promise<Record<string, unknown>> {
    return this._post(name, "purge", {}, options);
  }

  /** Deliver nothing until `resume`. */
  async pause(name: string, options?: Waiting): Promise<QueueObject> {
    return this._post(name, "pause", {}, options);
  }

  /** Deliver again. */
  async resume(name: string, options?: Waiting): Promise<QueueObject> {
    return this._post(name, "resume", {}, options);
  }

  /** Send a dead-letter queue's messages back to where they came from: all that are there now, or
   * at most `max`. How many there were is `redriven` of the answer. */
  async redrive(name: string, body: RedriveBody = {}, options?: Waiting): Promise<RedriveAnswer> {
    const { max = Infinity } = body;
    let redriven = 0;
    let after: unknown;
    do {
      const asked = { ...body, max: Math.min(REDRIVE_MAX, max - redriven), after };
      const answer: RedriveAnswer & { next?: string | null } = await this._post(
        name,
        "redrive",
        snake(asked),
        options,
      );
      redriven += answer.redriven;
      after = answer.next;
    } while (after && redriven < max);
    return { redriven };
  }

  /** What state a message is in, since when, and why. */
  async explain(name: string, id: string, options?: Waiting): Promise<Explanation> {
    return this._get(queuePath(name, "messages", id, "explain"), options);
  }
}

/** `max_attempts` for `maxAttempts`. */
const snake = (object: object): object =>
  Object.fromEntries(
    Object.entries(object).map(([name, value]) => [
      name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
      value as unknown,
    ]),
  );

/** `maxAttempts` for `max_attempts`, all the way down, but not in what users published. */
function camel(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(camel);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [
      name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()),
      name === "body" || name === "headers" ? inner : camel(inner),
    ]),
  );
}
