/** `connect` and `Client`: the SDK's surface. */

import { Consumption, type Handler } from "./consumption.js";
import type { Call } from "./core/calls.js";
import { type Wish, WISHES } from "./core/choice.js";
import { ClientCore } from "./core/client.js";
import type { State, Ticket } from "./core/effects.js";
import { checkOptions } from "./core/options.js";
import {
  Item,
  type MessageOptions,
  NONE,
  OPTIONS,
  Publication,
  type Published,
} from "./core/publication.js";
import { type Settings, settingsOf } from "./core/settings.js";
import type { AckMode, Subscription as CoreSubscription } from "./core/subscription.js";
import { DEFAULT_URL, parseUrl } from "./core/url.js";
import { Driver, type Token } from "./driver.js";
import type { Message } from "./message.js";
import { Queues } from "./queues.js";
import { Subscription } from "./subscription.js";
import { outcome, type Waiting } from "./ticket.js";
import { ask, valueOf } from "./transport/http.js";
import { findWebSocket } from "./transport/websocket.js";
import { badRequest, PushlaneError } from "./wire/errors.js";
import { toBase64 } from "./wire/text.js";

const LEAST_CREDIT = 64;
const PUBLISH_OPTIONS = [...OPTIONS, "signal"];

/** How to connect. */
export interface ConnectOptions extends Waiting {
  /** Credentials, or a function (async or not) that is asked at every connect; without it the
   * variable PUSHLANE_TOKEN counts, where there are variables. */
  token?: Token | undefined;
  /** "ws", a WebSocket; "poll", HTTP requests that wait for messages; or "auto" (the default), a
   * WebSocket where one can be had and polling where something in between doesn't let it through. */
  transport?: Wish | undefined;
  /** For operators to see. */
  name?: string | undefined;
  /** Bounds of the client, for those who need others. */
  settings?: Partial<Settings> | undefined;
}

export interface PublishOptions extends MessageOptions, Waiting {}

export interface SubscribeOptions extends Waiting {
  /** How many unsettled messages may be here at once (64). */
  credit?: number | undefined;
  /** How long a message may be worked on before it goes to somebody else; else the queue's. */
  leaseMs?: number | undefined;
  /** "none": messages are settled before they are sent, at most once. */
  ack?: AckMode | undefined;
}

export interface ConsumeOptions extends Waiting {
  /** How many messages at a time (10). */
  concurrency?: number | undefined;
  credit?: number | undefined;
  leaseMs?: number | undefined;
}

/** What a "state" event tells. */
export interface StateDetail {
  state: State;
  /** Why it is closed, if not by your wish. */
  error: PushlaneError | null;
}

/** What a "handlererror" event tells. */
export interface HandlerErrorDetail {
  error: unknown;
  message: Message;
}

export interface ClientEventMap {
  state: CustomEvent<StateDetail>;
  handlererror: CustomEvent<HandlerErrorDetail>;
}

/**
 * Connect to a server.
 *
 *     const client = await connect("wss://queue.example.org", { token: fetchToken });
 *
 * `url` is ws, wss, http or https; without it the variable PUSHLANE_URL counts, where there are
 * variables, else ws://127.0.0.1:8420. Rejects with `unauthorized` or `forbidden` at once, and with
 * ConnectionLost after ten seconds. Later the client connects again on its own, for as long as it
 * lives. The `signal` ends the attempt, not the client.
 */
export async function connect(url?: string | null, options: ConnectOptions = {}): Promise<Client> {
  checkOptions("connect", options, ["token", "transport", "name", "settings", "signal"]);
  const { transport = "auto", name, token = variable("PUSHLANE_TOKEN"), signal } = options;
  if (!WISHES.includes(transport)) {
    throw badRequest(`transport is ${String(transport)}: ${WISHES.join(", ")}`);
  }
  const endpoint = parseUrl(url ?? variable("PUSHLANE_URL") ?? DEFAULT_URL);
  const settings = settingsOf(options.settings);
  const webSocket = transport === "poll" ? undefined : await findWebSocket();
  if (!webSocket && transport === "ws") {
    throw badRequest("there is no WebSocket here: install the package ws, or use Node 22");
  }
  const core = new ClientCore({
    producer: `js-${unguessable()}`,
    random: Math.random,
    settings,
    name,
    transport: webSocket ? transport : "poll",
  });
  const driver = new Driver(core, endpoint, token, webSocket, (...to) => client._changed(...to));
  const queues = new Queues(async (call: Call, stop: AbortSignal | undefined) =>
    valueOf(await ask(endpoint.http, call, await driver.token(), settings.httpMs, stop)),
  );
  const client = new Client(driver, queues);
  const begin = (ticket: Ticket) => {
    core.start(driver.now(), ticket);
    driver.run();
  };
  await outcome(signal, begin, () => void client.close({ timeoutMs: 0 }));
  return client;
}

/** Its events, with their types. */
export interface Client {
  addEventListener<K extends keyof ClientEventMap>(
    type: K,
    listener: (event: ClientEventMap[K]) => unknown,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(...args: Parameters<EventTarget["addEventListener"]>): void;
  removeEventListener<K extends keyof ClientEventMap>(
    type: K,
    listener: (event: ClientEventMap[K]) => unknown,
    options?: boolean | EventListenerOptions,
  ): void;
  removeEventListener(...args: Parameters<EventTarget["removeEventListener"]>): void;
}

/** A connection to a server that outlives its sockets; made by `connect`. */
export class Client extends EventTarget {
  private _core: ClientCore;

  /** @internal */
  constructor(
    private _driver: Driver,
    /** Making, changing and looking at queues. */
    readonly queues: Queues,
  ) {
    super();
    this._core = _driver.core;
  }

  /** `connecting`, `open`, `polling` (open without a WebSocket) or `closed`. A "state" event tells
   * of each change. */
  get state(): State {
    return this._core.state;
  }

  /** @internal */
  _changed(state: State, error: PushlaneError | null): void {
    this._dispatch("state", { state, error });
  }

  private _dispatch(type: keyof ClientEventMap, detail: unknown): void {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  // Publishing

  /**
   * Store a message; resolves with its id once it is durable.
   *
   *     await client.publish("orders", { order: 17 }, { key: "customer-5" });
   *     await client.publish("images", undefined, { data: png, headers: { type: "image/png" } });
   *
   * Give `body`, any JSON value, or `data`, bytes. Calls made at the same time share a frame. When
   * the connection breaks before the answer, it is sent again and stored once.
   */
  publish(queue: string, body?: unknown, options: PublishOptions = NONE): Promise<string> {
    if (options === NONE && this._core.producer.hasRoom) {
      return new Promise((resolve, reject) => {
        const tell = ({ id }: Published) => resolve(id!);
        this._publish(queue, body, options, { resolve: tell as Ticket["resolve"], reject });
      });
    }
    return this._publishWith(queue, body, options);
  }

  /** The same, with all that may be asked for. */
  private async _publishWith(
    queue: string,
    body: unknown,
    options: PublishOptions,
  ): Promise<string> {
    checkOptions("publish", options, PUBLISH_OPTIONS);
    const { signal } = options;
    if (!this._core.producer.hasRoom) await this._enter(signal);
    let publication: Publication;
    const { id } = await outcome<Published>(
      signal,
      (ticket) => (publication = this._publish(queue, body, options, ticket)),
      () => this._core.producer.withdraw(queue, publication),
    );
    return id!;
  }

  private _publish(
    queue: string,
    body: unknown,
    options: MessageOptions,
    ticket: Ticket,
  ): Publication {
    const publication = new Publication(body, options, ticket);
    this._core.publish(queue, publication, this._driver.now());
    this._driver.soon();
    return publication;
  }

  /**
   * Store many messages; what became of each, in their order. Rejects only for an abort.
   *
   *     const results = await client.publishMany("orders", [{ order: 1 }, { order: 2 }]);
   *     const failed = results.filter((result) => result.error);
   *
   * An item is a body, or an `Item` with options. Items are drawn as they can be sent, so an
   * iterable (async or not) may be longer than memory has room for its messages.
   */
  async publishMany(
    queue: string,
    items: Iterable<unknown> | AsyncIterable<unknown>,
    { signal }: Waiting = {},
  ): Promise<Published[]> {
    const results: Published[] = [];
    let open = 1;
    let tell = () => {};
    const close = () => {
      if (--open === 0) tell();
    };
    for await (const item of items) {
      signal?.throwIfAborted();
      if (!this._core.producer.hasRoom) await this._enter(signal);
      const index = results.push({ id: null, duplicate: false, error: null }) - 1;
      open += 1;
      const ticket: Ticket = {
        resolve(value) {
          results[index] = value as Published;
          close();
        },
        reject(error) {
          results[index] = { id: null, duplicate: false, error: error as PushlaneError };
          close();
        },
      };
      this._publishItem(queue, item, ticket);
    }
    close();
    if (open) {
      await outcome<void>(signal, (ticket) => {
        tell = () => ticket.resolve();
      });
    }
    return results;
  }

  private _publishItem(queue: string, item: unknown, ticket: Ticket): void {
    try {
      if (item instanceof Item) this._publish(queue, item.body, item.options, ticket);
      else this._publish(queue, item, NONE, ticket);
    } catch (error) {
      if (!(error instanceof PushlaneError)) throw error;
      ticket.reject(error);
    }
  }

  /** Wait for room among the messages that wait to be sent. */
  private async _enter(signal: AbortSignal | undefined): Promise<void> {
    const { producer } = this._core;
    this._core.checkOpen();
    await outcome(
      signal,
      (ticket) => {
        producer.enter(ticket);
        this._driver.soon();
      },
      (ticket) => producer.leave(ticket),
    );
    producer.entered();
  }

  // Consuming

  /** Receive a queue's messages; see `Subscription`. An aborted `signal` closes it, later too. */
  async subscribe<T = unknown>(
    queue: string,
    options: SubscribeOptions = {},
  ): Promise<Subscription<T>> {
    checkOptions("subscribe", options, ["credit", "leaseMs", "ack", "signal"]);
    const { credit = LEAST_CREDIT, leaseMs, ack = "explicit", signal } = options;
    let subscription!: Subscription<T>;
    await this._subscribe(queue, credit, ack, leaseMs, signal, (core) => {
      core.owner = subscription = new Subscription<T>(this._driver, core);
    });
    const close = () => void subscription.close();
    signal?.addEventListener("abort", close);
    subscription._whenOver(() => signal?.removeEventListener("abort", close));
    return subscription;
  }

  /**
   * Call `handler` with each message, `concurrency` of them at a time, until the signal is aborted.
   *
   *     await client.consume("orders", async (message) => {
   *       await charge(message.body, message.fence);
   *     });
   *
   * A message is acked when its handler is done, nacked when it throws; its lease is extended
   * meanwhile, for at most an hour. When the lease is lost, or consuming is to stop, the message's
   * `signal` is aborted. Resolves when the client is closed or the signal aborted, all handlers are
   * done and the server has confirmed their acks; rejects when the server ends the subscription.
   */
  async consume<T = unknown>(
    queue: string,
    handler: Handler<T>,
    options: ConsumeOptions = {},
  ): Promise<void> {
    checkOptions("consume", options, ["concurrency", "credit", "leaseMs", "signal"]);
    const { concurrency = 10, leaseMs, signal } = options;
    if (typeof handler !== "function") throw badRequest("handler is no function");
    if (!(Number.isInteger(concurrency) && concurrency >= 1)) {
      throw badRequest(`concurrency is ${concurrency}: at least 1`);
    }
    const wished = Math.min(Math.max(LEAST_CREDIT, 4 * concurrency), this._core.limits.credit);
    const { credit = wished } = options;
    if (signal?.aborted) return;
    const onFault = (error: unknown, message: Message<T>) =>
      this._dispatch("handlererror", { error, message });
    let consumption!: Consumption<T>;
    const begun = this._subscribe(queue, credit, "explicit", leaseMs, undefined, (core) => {
      core.owner = consumption = new Consumption(this._driver, core, handler, concurrency, onFault);
    });
    const stop = () => consumption.stop(signal!.reason);
    signal?.addEventListener("abort", stop);
    consumption.over.catch(() => {}); // `begun` tells of the same
    try {
      await begun.catch((error: unknown) => {
        if (!signal?.aborted) throw error;
      });
      await consumption.over;
    } finally {
      signal?.removeEventListener("abort", stop);
    }
  }

  private _subscribe(
    queue: string,
    credit: number,
    ack: AckMode,
    leaseMs: number | undefined,
    signal: AbortSignal | undefined,
    own: (core: CoreSubscription) => void,
  ): Promise<void> {
    let core: CoreSubscription;
    return outcome(
      signal,
      (ticket) => {
        core = this._core.subscribe(queue, credit, ack, leaseMs, ticket);
        own(core);
        this._driver.soon();
      },
      () => {
        this._core.consumer.unsubscribe(core);
        this._driver.soon();
      },
    );
  }

  // The end

  /** End gracefully: nothing new begins, handlers and unanswered requests get `timeoutMs` (30000),
   * then leases are lost and the session ends. What is left goes back. An aborted `signal` ends it
   * at once. */
  async close(options: Waiting & { timeoutMs?: number | undefined } = {}): Promise<void> {
    checkOptions("close", options, ["timeoutMs", "signal"]);
    const { timeoutMs = this._core.settings.closeMs, signal } = options;
    if (!(timeoutMs >= 0)) throw badRequest(`timeoutMs is ${timeoutMs}: at least 0`);
    const end = (within: number, ticket: Ticket | null) => {
      this._core.close(this._driver.now(), within, ticket);
      if (!within) this._core.tick(this._driver.now());
      this._driver.run();
    };
    await outcome(
      signal,
      (ticket) => end(timeoutMs, ticket),
      () => end(0, null),
    );
    await this._driver.gone();
  }
}

/** What Node has and browsers don't. */
type Variables = { [process: string]: { [env: string]: Record<string, string> } | undefined };

/** An environment variable, where there are any. */
const variable = (name: string): string | undefined =>
  (globalThis as unknown as Variables)["process"]?.["env"]?.[name] || undefined;

/** 96 random bits. */
const unguessable = (): string =>
  toBase64(crypto.getRandomValues(new Uint8Array(12)))
    .replace(/\+/g, "-")
    .replace(/\//g, "_");
