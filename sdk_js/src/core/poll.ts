/**
 * A session over HTTP: the core's frames in, requests out; answers in, frames for the core out.
 *
 * The core speaks frames as over a WebSocket. What a session is on the server's side there is here:
 *
 *     hello            GET /v1/limits: whether the server is there and takes the token
 *     publish          POST …/messages; the numbers of the frames become dedup ids     (lane.ts)
 *     ack nack extend  POST …/ack and so on, gathered                                  (lane.ts)
 *     subscribe        POST …/receive, again and again while messages are wanted       (polled.ts)
 *     unsubscribe      cancels the receive that waits: the server takes its messages back
 *
 * Receipts of HTTP belong to nobody's session and outlive connections, so every reconnect is a
 * resumption; what was lost meanwhile shows when leases are extended. A request whose connection
 * breaks breaks the link, and the core comes back with its backoff and repeats what has no answer.
 *
 * A shell calls `flush`, carries out `asks` and `drops` and hands `frames` to the core, each of
 * which it clears; when there is a `fault` the link is lost. It reports `answered` and `failed`.
 */

import { ConnectionLost, PushlaneError } from "../wire/errors.js";
import type { ServerFrame, Unsubscribe } from "../wire/frames.js";
import { DEFAULT_LIMITS, limitsOf } from "../wire/limits.js";
import { type Answer, errorOf } from "./answer.js";
import { type Call, get } from "./calls.js";
import type { OutFrame } from "./frame.js";
import { errorFrame, PublishLane, SettleLane } from "./lane.js";
import { Polled } from "./polled.js";
import type { Settings } from "./settings.js";
import type { SettleFrame } from "./settle.js";

const SESSION = "poll";
const UNAUTHORIZED = 401;

/** A request to make. */
export interface Ask {
  number: number;
  call: Call;
  token: string | undefined;
  timeoutMs: number;
}

type Asker = PublishLane | SettleLane | Polled | "hello";

/** The session of one client, over all its links. */
export class Poll {
  asks: Ask[] = [];
  /** Requests that are no longer wanted: cut their connections. */
  drops: number[] = [];
  frames: ServerFrame[] = [];
  fault: PushlaneError | null = null;
  /** Whether the server is there and accepts us. */
  isOpen = false;
  /** The client ended it. */
  isLeaving = false;
  private _limits = DEFAULT_LIMITS;
  private _token: string | undefined;
  private _producer = "";
  private _asked = new Map<number, Asker>();
  private _lastNumber = 0;
  private _lastSub = 0;
  private _subs = new Map<number, Polled>();
  private _publishes = new Map<string, PublishLane>();
  private _settles = new Map<string, SettleLane>();
  private _isResumed = false;

  constructor(
    private _settings: Settings,
    private _random: () => number,
    /** How many messages of a sub may come now; null when the client has forgotten it. */
    private _room: (sub: number) => number | null,
  ) {}

  // From the core

  /** A frame of the client. Leases run from the delivery on, so there is no `start`. */
  send(frame: OutFrame): void {
    switch (frame.op) {
      case "hello":
        this.reset();
        this._isResumed = frame.resume?.session === SESSION;
        if (!this._isResumed) this._subs.clear();
        this._token = frame.token ?? undefined;
        this._producer = frame.producer ?? "";
        this._ask("hello", get("/v1/limits"), this._settings.httpMs);
        return;
      case "publish": {
        const lane = this._publishes.get(frame.to) ?? new PublishLane(frame.to, this._producer);
        this._publishes.set(frame.to, lane);
        lane.waiting.push(frame);
        return;
      }
      case "ack":
      case "nack":
      case "extend":
        return this._settle(frame);
      case "subscribe": {
        const sub = new Polled(frame, ++this._lastSub, this._settings, this._random);
        this._subs.set(sub.number, sub);
        return;
      }
      case "unsubscribe":
        return this._unsubscribe(frame);
    }
  }

  private _settle(frame: SettleFrame): void {
    const queue = this._subs.get(frame.sub)?.queue;
    if (queue !== undefined) {
      const lane = this._settles.get(queue) ?? new SettleLane(queue);
      this._settles.set(queue, lane);
      lane.waiting.push(frame);
    } else if (frame.id) {
      this._say({ op: "done", id: frame.id, lease_lost: frame.receipts });
    }
  }

  private _unsubscribe({ id, sub }: Unsubscribe): void {
    const polled = this._subs.get(sub);
    if (polled) {
      polled.isOver = true;
      this._drop(polled);
    }
    this._say({ op: "done", id });
  }

  /** The client ends: what it said last is still to be sent, but nothing more to come. */
  leave(): void {
    this.isLeaving = true;
    for (const sub of this._subs.values()) this._drop(sub);
  }

  // To the server

  /** Make requests of what gathered, as far as it may go out now. */
  flush(now: number): void {
    if (!this.isOpen || this.fault) return;
    this._flushLanes(this._settles);
    this._flushLanes(this._publishes);
    if (this.isLeaving) return;
    for (const sub of [...this._subs.values()]) this._flushSub(sub, now);
  }

  private _flushLanes(lanes: Map<string, PublishLane | SettleLane>): void {
    for (const [queue, lane] of [...lanes]) {
      if (this._busy >= this._settings.pollRequests) return;
      this._flushLane(lane);
      if (lane.isIdle) {
        lanes.delete(queue);
      } else if (lane.asked.length) {
        lanes.delete(queue); // the others first, next time
        lanes.set(queue, lane);
      }
    }
  }

  /** How many requests are under way that are no receives. */
  private get _busy(): number {
    let busy = 0;
    for (const asker of this._asked.values()) if (!(asker instanceof Polled)) busy += 1;
    return busy;
  }

  private _flushLane(lane: PublishLane | SettleLane): void {
    if (lane.asked.length || !lane.waiting.length) return;
    try {
      this._ask(lane, lane.call(this._limits), this._settings.httpMs);
    } catch (fault) {
      this._say(...lane.refuse(fault as PushlaneError)); // a topic, say: it has no path
    }
  }

  private _flushSub(sub: Polled, now: number): void {
    const room = sub.hasBegun ? this._room(sub.number) : 1;
    if (sub.isOver) {
      if (room === null || !sub.hasBegun) this._subs.delete(sub.number);
    } else if (room === null || room < 0) {
      return; // the client is about to hear of it, or to go
    } else if (room <= 0 && !sub.isSettling) {
      this._drop(sub);
    } else if (sub.request === null && sub.retryAt <= now) {
      try {
        const call = sub.call(room, this._limits, now);
        sub.request = this._ask(sub, call, sub.timeoutMs);
      } catch (fault) {
        this._say(...sub.refused(fault as PushlaneError, now));
      }
    }
  }

  private _ask(asker: Asker, call: Call, timeoutMs: number): number {
    const number = ++this._lastNumber;
    this._asked.set(number, asker);
    this.asks.push({ number, call, token: this._token, timeoutMs });
    return number;
  }

  private _drop(sub: Polled): void {
    if (sub.request === null) return;
    this._asked.delete(sub.request);
    this.drops.push(sub.request);
    sub.request = null;
  }

  /** When to flush again at the latest; null: no time is known. */
  wakeAt(now: number): number | null {
    let at = Infinity;
    for (const { isOver, retryAt } of this._subs.values()) {
      if (!isOver && retryAt > now && retryAt < at) at = retryAt;
    }
    return at === Infinity ? null : at;
  }

  // From the server

  /** A request got its answer. */
  answered(number: number, answer: Answer, now: number): void {
    const asker = this._forget(number);
    if (!asker || this.fault) return;
    if (asker === "hello") {
      this._greeted(answer);
    } else if (answer.status === UNAUTHORIZED) {
      // A new link has a new token, or fails for good.
      this.fault = new ConnectionLost("the token is no longer accepted");
    } else {
      const said = asker instanceof Polled ? asker.answered(answer, now) : asker.answers(answer);
      this._say(...said);
    }
  }

  private _greeted(answer: Answer): void {
    let error = errorOf(answer);
    const { limits } = (answer.value ?? {}) as { limits?: Record<string, number> };
    // Some networks answer everything with a page to log in.
    if (!error && !limits) {
      error = new PushlaneError("unavailable", "there is something else than a Pushlane server");
    }
    if (error) {
      this._say(errorFrame(error));
      return;
    }
    this.isOpen = true;
    this._limits = limitsOf(limits!);
    this._say({
      op: "welcome", session: SESSION, node: "", server: "", resumed: this._isResumed, now: 0,
      resume_ms: 0, heartbeat_ms: 0, limits: limits!,
    }); // prettier-ignore
  }

  /** A request got no answer: its connection could not be had, or broke. */
  failed(number: number, error: PushlaneError, now: number): void {
    const asker = this._forget(number);
    if (asker instanceof Polled && asker.wasCut(now)) this._say(...asker.refused(error, now));
    else if (asker) this.fault ??= error;
  }

  private _forget(number: number): Asker | undefined {
    const asker = this._asked.get(number);
    this._asked.delete(number);
    return asker;
  }

  private _say(...frames: ServerFrame[]): void {
    this.frames.push(...frames);
  }

  // Links

  /** Nothing is under way, and nothing waits to be. */
  get isIdle(): boolean {
    return !(this._asked.size || this._publishes.size || this._settles.size);
  }

  /** The link is gone: what has no answer is the core's to repeat. */
  reset(): void {
    this._asked.clear();
    this._publishes.clear();
    this._settles.clear();
    this.asks = [];
    this.drops = [];
    this.frames = [];
    this.fault = null;
    this.isOpen = false;
    for (const sub of [...this._subs.values()]) {
      sub.request = null;
      if (!sub.hasBegun) this._subs.delete(sub.number);
    }
  }
}
