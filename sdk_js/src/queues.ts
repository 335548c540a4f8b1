/** `Client.queues`: making, changing and looking at queues, over HTTP. */

import type { Waiting } from "./ticket.js";
import { badRequest } from "./wire/errors.js";
import { camel, renamed, snake } from "./wire/names.js";
import type {
  Explanation,
  NewQueue,
  PeekAnswer,
  PurgeAnswer,
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

/** What may be said of a new queue. */
export type QueueSettings = Omit<NewQueue, "name">;

/** A part of a list. */
export interface PageOptions {
  limit?: number | undefined;
  /** Where the page before ended. */
  after?: string | undefined;
}

type Ask = (
  method: string,
  path: string,
  body: string | undefined,
  signal: AbortSignal | undefined,
) => Promise<unknown>;

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

  /** What is said goes into the body or, where there is none, into the query. */
  private async _call<T>(
    method: string,
    path: string[],
    { signal }: Waiting = {},
    said: object = {},
    query = "",
  ): Promise<T> {
    const [name] = path;
    if (name && !/^[\w-][\w.-]*$/.test(name)) throw badRequest(`${name} is not a name`);
    let target = path.map((part) => `/${encodeURIComponent(part)}`).join("") + query;
    let body: string | undefined = JSON.stringify(renamed(said, snake));
    if (!method.startsWith("P")) {
      const query = JSON.parse(body) as Record<string, string>; // without what is undefined
      target += `?${new URLSearchParams(query).toString()}`;
      body = undefined;
    }
    return renamed(await this._ask(method, target, body, signal), camel) as T;
  }

  /** Make a queue; what is not given gets its default. One that is there is never changed: it is
   * answered when all that is given is the same, and is a `conflict` that says what differs
   * otherwise. */
  create(name: string, config: QueueSettings = {}, options?: Waiting): Promise<QueueObject> {
    return this._call("POST", [], options, { ...config, name });
  }

  /** Make a queue if there is none; one that is there is left alone, whatever it is like. */
  ensure(name: string, config: QueueSettings = {}, options?: Waiting): Promise<QueueObject> {
    return this._call("POST", [], options, { ...config, name }, "?ensure=true");
  }

  /** Replace a queue's whole configuration, or make it: what is not given gets its default, but for
   * `paused`, which stays as it is. */
  replace(name: string, config: QueueBody = {}, options?: Waiting): Promise<QueueObject> {
    return this._call("PUT", [name], options, config);
  }

  /** A queue's configuration; `not_found` when there is none. */
  get(name: string, options?: Waiting): Promise<QueueObject> {
    return this._call("GET", [name], options);
  }

  /** Change some of a queue's configuration; null restores a default. */
  update(name: string, changes: QueueChanges, options?: Waiting): Promise<QueueObject> {
    return this._call("PATCH", [name], options, changes);
  }

  /** Delete a queue with all its messages. */
  async delete(name: string, options?: Waiting): Promise<void> {
    await this._call("DELETE", [name], options, { confirm: name });
  }

  /** A page of queues in order of name, those behind `after`; with `stats` how each is doing. */
  list({
    limit,
    after,
    stats,
    ...options
  }: Waiting & PageOptions & { stats?: boolean | undefined } = {}): Promise<QueuePage> {
    return this._call("GET", [], options, { limit, after, stats });
  }

  /** How many messages are ready, leased, delayed, … */
  stats(name: string, options?: Waiting): Promise<Stats> {
    return this._call("GET", [name, "stats"], options);
  }

  /** Look at the next messages without taking them. The answer's `next`, if there is one, is the
   * `after` of the next page. */
  peek(
    name: string,
    { limit, after, ...options }: Waiting & PageOptions = {},
  ): Promise<PeekAnswer> {
    return this._call("GET", [name, "peek"], options, { limit, after });
  }

  /** Drop all messages that nobody holds; how many there were is `purged` of the answer. */
  purge(name: string, options?: Waiting): Promise<PurgeAnswer> {
    return this._call("POST", [name, "purge"], options);
  }

  /** Deliver nothing until `resume`. */
  pause(name: string, options?: Waiting): Promise<QueueObject> {
    return this._call("POST", [name, "pause"], options);
  }

  /** Deliver again. */
  resume(name: string, options?: Waiting): Promise<QueueObject> {
    return this._call("POST", [name, "resume"], options);
  }

  /** Send a dead-letter queue's messages back to where they came from: all that are there now, or
   * at most `max`. How many there were is `redriven` of the answer. */
  async redrive(name: string, body: RedriveBody = {}, options?: Waiting): Promise<RedriveAnswer> {
    const { max = Infinity } = body;
    let redriven = 0;
    let after: string | null | undefined;
    do {
      const part = { ...body, max: Math.min(REDRIVE_MAX, max - redriven), after };
      const path = [name, "redrive"];
      const answer = await this._call<RedriveAnswer>("POST", path, options, part);
      redriven += answer.redriven;
      after = answer.next;
    } while (after && redriven < max);
    return { redriven };
  }

  /** What state a message is in, since when, and why. */
  explain(name: string, id: string, options?: Waiting): Promise<Explanation> {
    return this._call("GET", [name, "messages", id, "explain"], options);
  }
}
