/** `connect` and `Client`: the SDK's surface. */

import { type Handler, makeConsumption } from "./consumption.js";
import type { Wish } from "./core/choice.js";
import type { Ticket } from "./core/line.js";
import { type Entrant } from "./core/producer.js";
import {
  Item,
  type MessageOptions,
  NONE,
  Publication,
  type Published,
} from "./core/publication.js";
import { refuse, type Settings, settingsOf } from "./core/settings.js";
import type { State } from "./core/shell.js";
import type {
  AckMode,
  Subscription as CoreSubscription,
  Taker,
  Wanted,
} from "./core/subscription.js";
import { DEFAULT_URL, isReadable, parseUrl } from "./core/url.js";
import { type Driver, makeDriver, type Token } from "./driver.js";
import type { Message } from "./message.js";
import { findWebSocket, givenToken, givenUrl } from "./platform/node.js";
import { Queues } from "./queues.js";
import { Subscription } from "./subscription.js";
import { onAbort, outcome, type Waiting } from "./ticket.js";
import { ask } from "./transport/http.js";
import { badRequest, type PushlaneError } from "./wire/errors.js";

const LEAST_CREDIT = 64;

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
  const {
    transport = "auto", name, token = givenToken(), settings: changes, signal, ...unknown
  } = options; // prettier-ignore
  refuse(unknown);
  if (!/^(auto|ws|poll)$/.test(transport)) throw badRequest(`transport ${transport}`);
  const base = parseUrl(url ?? givenUrl() ?? DEFAULT_URL);
  if (token && isReadable(base)) {
    console.warn(`pushlane: the token goes to ${base} without TLS: use wss://`);
  }
  const settings = settingsOf(changes);
  const isPoll = transport === "poll";
  const webSocket = isPoll ? undefined : await findWebSocket(transport === "ws");
  const core = {
    producer: `js-${crypto.getRandomValues(new Uint32Array(3)).join("-")}`,
    random: Math.random,
    settings,
    name,
    transport: webSocket ? transport : "poll",
  } as const;
  const driver = makeDriver(core, base, token, webSocket, (state, error) =>
    client._dispatch("state", { state, error }),
  );
  const queues = new Queues(async (method, path, body, stop) => {
    const url = `${base}/v1/queues${path}`;
    return ask(method, url, body, await driver.token(), settings.httpMs, stop);
  });
  const client = new Client(driver, queues);
  await outcome(
    signal,
    (ticket) => {
      driver.core.start(driver.now(), ticket);
      driver.run();
    },
    () => void client.close({ timeoutMs: 0 }),
  );
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
  /** @internal */
  constructor(
    private _driver: Driver,
    /** Making, changing and looking at queues. */
    readonly queues: Queues,
  ) {
    super();
  }

  /** `connecting`, `open`, `polling` (open without a WebSocket) or `closed`. A "state" event tells
   * of each change. */
  get state(): State {
    return this._driver.core.state;
  }

  /** @internal */
  _dispatch(type: keyof ClientEventMap, detail: unknown): void {
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
   * the connection breaks before the answer, it is sent again and stored once. The id is empty when
   * an earlier try had stored it, so long ago that the server forgot which id it got.
   *
   * An aborted `signal` withdraws the message if it was not sent yet; else it may be stored. To try
   * again without storing it twice, give `dedup`.
   */
  publish(queue: string, body?: unknown, options: PublishOptions = NONE): Promise<string> {
    return this._publish(queue, body, options, ({ id }) => id ?? "", options.signal);
  }

  private _publish<R>(
    queue: string,
    body: unknown,
    options: MessageOptions,
    pick: (published: Published) => R,
    signal?: AbortSignal,
    onEntered?: () => void,
  ): Promise<R> {
    const { core, now } = this._driver;
    let entrant: Entrant;
    let publication: Publication | undefined;
    return outcome<R>(
      signal,
      ({ resolve, reject }) => {
        core.checkOpen();
        entrant = {
          reject,
          enter: () => {
            try {
              const ticket = { resolve: (one?: Published) => resolve(pick(one!)), reject };
              publication = new Publication(body, options, ticket);
              core.producer.publish(queue, publication, now());
            } catch (error) {
              reject(error);
            }
            onEntered?.();
            this._driver.soon();
          },
        };
        core.producer.admit(entrant);
      },
      () => core.producer.withdraw(entrant, queue, publication),
    );
  }

  /**
   * Store many messages; what became of each, in their order. Rejects only for an abort.
   *
   *     const results = await client.publishMany("orders", [{ order: 1 }, { order: 2 }]);
   *     const failed = results.filter((result) => result.error);
   *
   * An item is a body, or an `Item` with options. Items are drawn as they can be sent, so an
   * iterable (async or not) may be longer than memory has room for its messages. An abort withdraws
   * what was not sent yet; what was sent may be stored.
   */
  async publishMany(
    queue: string,
    items: Iterable<unknown> | AsyncIterable<unknown>,
    { signal }: Waiting = {},
  ): Promise<Published[]> {
    const results: Promise<Published>[] = [];
    for await (const item of items) {
      await outcome<void>(signal, ({ resolve: entered }) => {
        const [body, options] = item instanceof Item ? [item.body, item.options] : [item, NONE];
        const enter = () => entered();
        const result = this._publish(queue, body, options, (one) => one, signal, enter);
        results.push(
          result.catch((error: PushlaneError) => {
            entered();
            return { id: null, duplicate: false, error };
          }),
        );
      });
    }
    return outcome(signal, ({ resolve }) => void Promise.all(results).then(resolve));
  }

  // Consuming

  /** Receive a queue's messages; see `Subscription`. An aborted `signal` closes it, later too. */
  async subscribe<T = unknown>(
    queue: string,
    options: SubscribeOptions = {},
  ): Promise<Subscription<T>> {
    const { credit = LEAST_CREDIT, leaseMs, ack, signal, ...unknown } = options;
    refuse(unknown);
    const subscription = new Subscription<T>(this._driver, () => over());
    const over = onAbort(signal, () => void subscription.close());
    const wanted = { from: queue, credit, ack, lease_ms: leaseMs };
    try {
      await this._subscribe(wanted, subscription, signal);
    } catch (error) {
      over();
      throw error;
    }
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
    const { concurrency = 10, leaseMs, signal, credit, ...unknown } = options;
    refuse(unknown);
    if (typeof handler !== "function") throw badRequest("no handler");
    if (!(concurrency >= 1)) throw badRequest(`concurrency ${concurrency}`);
    if (signal?.aborted) return;
    const { core } = this._driver;
    const wanted = {
      from: queue,
      credit: credit ?? Math.min(Math.max(LEAST_CREDIT, 4 * concurrency), core.limits.credit),
      lease_ms: leaseMs,
    };
    const consumption = makeConsumption(this._driver, handler, concurrency, (error, message) =>
      this._dispatch("handlererror", { error, message }),
    );
    core.checkOpen();
    this._subscribe(wanted, consumption).catch(() => {}); // `over` tells of it, too
    const over = onAbort(signal, () => consumption.stop(signal!.reason));
    await consumption.over.finally(over);
  }

  private _subscribe(
    wanted: Wanted,
    owner: Taker & { _core: CoreSubscription },
    signal?: AbortSignal,
  ): Promise<void> {
    const { core } = this._driver;
    return outcome(
      signal,
      (ticket) => {
        core.checkOpen();
        owner._core = core.consumer.subscribe(wanted, ticket);
        owner._core.owner = owner;
        this._driver.soon();
      },
      () => {
        core.consumer.unsubscribe(owner._core);
        this._driver.soon();
      },
    );
  }

  // The end

  /** End gracefully: nothing new begins, handlers and unanswered requests get `timeoutMs` (30000),
   * then leases are lost and the session ends. What is left goes back. A server that is away is
   * waited for 5 s at most, and only for answers to publishes and acks. An aborted `signal` ends it
   * at once. */
  async close(options: Waiting & { timeoutMs?: number | undefined } = {}): Promise<void> {
    const { core, now } = this._driver;
    const { timeoutMs = core.settings.closeMs, signal, ...unknown } = options;
    refuse(unknown);
    if (!(timeoutMs >= 0)) throw badRequest(`timeoutMs ${timeoutMs}`);
    const end = (within: number, ticket?: Ticket) => {
      core.close(now(), within, ticket);
      core.tick(now());
      this._driver.run();
    };
    await outcome(
      signal,
      (ticket) => end(timeoutMs, ticket),
      () => end(0),
    );
    await this._driver.gone();
  }
}
