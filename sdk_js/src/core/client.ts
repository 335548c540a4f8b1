/**
 * The client: one state machine over connections, publishes, subscriptions and the end.
 *
 * A shell reports what happens (`connected`, `received`, `lost`, `tick`) and what users call; each
 * takes `now`, in milliseconds of any steady clock. Then it calls `flush`, which puts what gathered
 * into frames, and carries out `effects`. It wakes up again at `wakeAt` at the latest, for a `tick`.
 *
 *     const core = new ClientCore({ producer: "p-1", random: Math.random });
 *     core.start(now);                        // effects: dial 1
 *     core.connected(1, token, now);          // effects: send hello
 *     core.received(1, [welcome], now);       // effects: state "open"
 *     core.publish("orders", publication, now);
 *     core.flush(now);                        // effects: send publish
 *
 * Hello goes first and waits for its welcome: only that says what is left of the session, and so
 * what to send. A server that closes says whether to come back (`CLOSES`); after its goaway we
 * always do. Nothing here awaits, reads a clock or draws a random number.
 *
 * Where there is no WebSocket to be had (choice.ts) the frames are the same, and `poll.ts` makes
 * HTTP requests of them.
 */

import { canRetry, closeCodeOf, ConnectionLost, errorFor, PushlaneError } from "../wire/errors.js";
import type { Done, ErrorFrame, ServerFrame, Welcome } from "../wire/frames.js";
import { DEFAULT_LIMITS, limitsOf } from "../wire/limits.js";
import { isFrame } from "../wire/known.js";
import { CLOSES, ERRORS } from "../wire/tables.js";
import { Choice, NO_ANSWER, type Wish } from "./choice.js";
import { Consumer } from "./consumer.js";
import type { Effect, State, Ticket } from "./effects.js";
import type { OutFrame } from "./frame.js";
import type { Lease } from "./lease.js";
import { Link, type LinkPhase } from "./link.js";
import type { Loss } from "./loss.js";
import { Producer } from "./producer.js";
import type { Publication } from "./publication.js";
import { Requests } from "./requests.js";
import { DEFAULTS, type Settings } from "./settings.js";
import type { Kind } from "./settle.js";
import type { AckMode, Subscription } from "./subscription.js";

const NORMAL = 1000;
const GOING_AWAY = 1001;
const NO_FRAME = 1002;
const ABNORMAL = 1006;

/** What was awaited in vain, by phase. */
const OVERDUE: { [phase in LinkPhase]?: string } = {
  dialing: "no connection in time",
  greeting: "no welcome in time",
  open: "the server went silent",
};

/** The sans-I/O client; see the top of the file. */
export class ClientCore {
  readonly settings: Settings;
  state: State = "connecting";
  /** Why it closed, if not by our wish. */
  error: PushlaneError | null = null;
  readonly effects: Effect[] = [];
  readonly producer: Producer;
  readonly consumer: Consumer;
  limits = DEFAULT_LIMITS;
  private _producerName: string;
  private _name: string | undefined;
  private _link: Link;
  private _choice: Choice;
  private _requests = new Requests();
  private _session: string | null = null;
  private _startTicket: Ticket | null = null;
  /** What the server said of this connection, or why the last attempt failed. */
  private _lastError: PushlaneError | null = null;
  /** Between goaway and the end of this connection. */
  private _isLeaving = false;
  private _closeTicket: Ticket | null = null;
  private _closeBy: number | null = null;

  constructor(options: {
    producer: string;
    random: () => number;
    settings?: Settings;
    name?: string | undefined;
    transport?: Wish;
  }) {
    const { producer, random, settings = DEFAULTS, name, transport = "ws" } = options;
    this.settings = settings;
    this.producer = new Producer(settings, this.effects, random);
    this.consumer = new Consumer(settings, this.effects, random);
    this._producerName = producer;
    this._name = name;
    this._link = new Link(settings, random);
    this._choice = new Choice(transport, settings, random);
  }

  // Starting, and what happens to connections

  /** Connect; the ticket resolves with the first welcome. */
  start(now: number, ticket: Ticket | null = null): void {
    this._startTicket = ticket;
    this._link.giveUpAt = now + this.settings.connectMs;
    this._dial(now);
  }

  private _dial(now: number): void {
    const { transport, isPolling, isMade } = this._choice;
    this.consumer.isPolling = isPolling;
    this.effects.push({ kind: "dial", link: this._link.dial(now, !isMade), transport });
  }

  /** Whether it is still open which transport it will be. */
  get isChoosing(): boolean {
    return !this._choice.isMade;
  }

  /** The socket of this link is open. */
  connected(link: number, token: string | null | undefined, _now: number): void {
    if (link !== this._link.number || this._link.phase !== "dialing") {
      this._hangUp(link, GOING_AWAY);
      return;
    }
    this._link.phase = "greeting";
    this._send({
      op: "hello",
      ...(token && { token }),
      ...(this._name && { client: this._name }),
      producer: this._producerName,
      ...(this._session && {
        resume: { session: this._session, held: this.consumer.held() },
      }),
    });
  }

  /** Frames arrived; undefined stands for what is none. */
  received(link: number, frames: unknown[], now: number): void {
    for (const frame of frames) {
      if (link !== this._link.number || !this._link.hasSocket) return;
      if (typeof frame !== "object" || frame === null) {
        this._drop(link, NO_FRAME, new ConnectionLost("no frame"), now);
      } else if (isFrame(frame)) {
        this._take(frame, now);
      } // else it is from a newer server: not for us
    }
    if (link === this._link.number) this._link.heard(now);
  }

  /** The connection is gone, or the attempt failed. */
  lost(link: number, now: number, loss: Loss = {}): void {
    const { code = ABNORMAL, reason = "", error } = loss;
    let { refused } = loss;
    const { phase, number } = this._link;
    if (link !== number || phase === "closed" || phase === "waiting") return;
    if (phase === "greeting" && code === ABNORMAL && !error) refused = NO_ANSWER;
    if (refused !== undefined && this._choice.refused(refused)) {
      this._fallBack(now);
      return;
    }
    let fault = error ?? this._lastError;
    const row = CLOSES[code];
    // A reason that may be repeated says to connect again, whatever the close code does.
    const isFinal = row !== undefined && !row[1] && code !== NORMAL && !ERRORS[reason]?.[2];
    if (isFinal) fault ??= errorFor(reason || row[0], `the server closed with ${code}: ${reason}`);
    if (fault && !this._isLeaving && (isFinal || !canRetry(fault))) {
      this._link.close();
      this._end(fault);
      return;
    }
    const wasCut = phase === "open" && code === ABNORMAL && !fault && !this._isLeaving;
    const age = wasCut ? now - this._link.openedAt : null;
    this._disconnect(now, fault ?? new ConnectionLost(`the connection closed with ${code}`), age);
  }

  /** Cut the connection ourselves, and come back. */
  private _drop(link: number, code: number, fault: PushlaneError, now: number): void {
    this._hangUp(link, code);
    this._disconnect(now, new ConnectionLost(fault.message, fault.retryMs));
  }

  /** `cutAt`: how old the connection was when somebody cut it. */
  private _disconnect(now: number, error: PushlaneError, cutAt: number | null = null): void {
    this._choice.lost(cutAt);
    const requests = this._requests.clear();
    this.producer.disconnected();
    this.consumer.disconnected(requests);
    const until = this._link.wait(now, error.retryMs);
    this._isLeaving = false;
    this._lastError = null;
    const { giveUpAt } = this._link;
    if (giveUpAt !== null && until >= giveUpAt) {
      this._end(error);
      return;
    }
    this._change("connecting");
    this._finishIfDone();
  }

  // Frames from the server

  private _take(frame: ServerFrame, now: number): void {
    switch (frame.op) {
      case "deliver":
        return this.consumer.delivered(frame, now);
      case "published": {
        const request = this._requests.pop(frame.id);
        if (request?.kind === "publish") this.producer.answered(request, frame, now);
        return;
      }
      case "done":
        return this._done(frame);
      case "subscribed": {
        const request = this._requests.pop(frame.id);
        if (request?.kind === "subscribe") this.consumer.subscribed(request, frame);
        return;
      }
      case "lease_lost":
        return this.consumer.leasesLost(frame.sub, frame.receipts);
      case "ended":
        return this.consumer.ended(frame.sub, errorFor(frame.code, frame.message));
      case "welcome":
        return this._welcome(frame, now);
      case "goaway":
        this._isLeaving = true;
        this._link.reconnectMs = frame.reconnect_ms;
        return;
      case "error":
        return this._refused(frame, now);
    }
  }

  private _welcome(frame: Welcome, now: number): void {
    if (this._link.phase !== "greeting") return;
    this._link.open(now, frame.heartbeat_ms);
    this.limits = limitsOf(frame.limits);
    this.producer.setLimits(this.limits);
    this.consumer.setLimits(this.limits);
    if (frame.resumed && frame.session === this._session) {
      this.consumer.resumed(frame.lost ?? {}, now);
    } else {
      this.consumer.restarted();
    }
    this._session = frame.session;
    this._choice.welcomed(now);
    this.consumer.isPaused = this._choice.next !== null;
    this._change(this._choice.isPolling ? "polling" : "open");
    if (this._startTicket) this.effects.push({ kind: "resolve", ticket: this._startTicket });
    this._startTicket = null;
  }

  /** Another kind of request is the server's mistake: whoever waits for it is told when their time
   * is up. */
  private _done(frame: Done): void {
    const request = this._requests.pop(frame.id);
    if (request?.kind === "settle") this.consumer.done(request, frame);
    else if (request?.kind === "unsubscribe") this.consumer.unsubscribed(request);
  }

  private _refused(frame: ErrorFrame, now: number): void {
    const error = errorFor(frame.code, frame.message, frame.retry_ms);
    if (this._link.phase === "greeting") {
      if (canRetry(error)) {
        this._drop(this._link.number, GOING_AWAY, error, now);
      } else if (this._choice.repent()) {
        this._hangUp(this._link.number, GOING_AWAY);
        this._dial(now);
      } else {
        this._end(error);
      }
      return;
    }
    const request = this._requests.pop(frame.id);
    switch (request?.kind) {
      case "publish":
        return this.producer.refused(request, error, now);
      case "settle":
        return this.consumer.settleRefused(request, error, now);
      case "subscribe":
        return this.consumer.subscribeRefused(request, error, now);
      case "unsubscribe":
        return this.consumer.unsubscribed(request);
      default:
        this._lastError = closeCodeOf(error) === null ? null : error;
    }
  }

  // What users call

  /** Store a message; its ticket resolves with a `Published`. Throws what is wrong with it. */
  publish(queue: string, publication: Publication, now: number): void {
    this.checkOpen();
    this.producer.publish(queue, publication, now);
  }

  /** Ask for messages; the ticket resolves when it has begun. Throws `bad_request`. */
  subscribe(
    queue: string,
    credit: number,
    ack: AckMode,
    leaseMs: number | undefined,
    ticket: Ticket | null,
  ): Subscription {
    this.checkOpen();
    return this.consumer.subscribe(queue, credit, ack, leaseMs, ticket);
  }

  /** The next message to work on, if there is one and it may begin now. Then flush. */
  take(subscription: Subscription, now: number): Lease | undefined {
    return this._closeBy === null ? this.consumer.take(subscription, now) : undefined;
  }

  /** Ack, nack or extend; the ticket resolves on the server's word. */
  settle(lease: Lease, kind: Kind, ticket: Ticket | null = null): void {
    this.consumer.settle(lease, kind, ticket);
  }

  /** Extend the lease on its own while somebody works on it. */
  keep(lease: Lease, now: number): void {
    this.consumer.clocks.keep(lease, now);
  }

  /** Throw why nothing more can be asked for, if so. */
  checkOpen(): void {
    if (this.error) throw this.error;
    if (this.state === "closed" || this._closeBy !== null) {
      throw new ConnectionLost("the client is closed");
    }
  }

  // Time

  /** When to call `tick` at the latest; null: not at all. */
  wakeAt(): number | null {
    const { phase, until } = this._link;
    if (phase === "closed") return null;
    const at = Math.min(
      until ?? Infinity,
      this._choice.nextBy,
      this._choice.nextAt || Infinity,
      this._choice.probeAt,
      this._closeBy ?? Infinity,
      this.producer.wakeAt(),
      this.consumer.wakeAt(),
    );
    return at === Infinity ? null : at;
  }

  /** Do what is due. */
  tick(now: number): void {
    const { phase, until } = this._link;
    if (phase === "closed") return;
    if (this._closeBy !== null && now >= this._closeBy) {
      this._end(new ConnectionLost("the client was closed before the answer came"));
      return;
    }
    this.producer.tick(now);
    this.consumer.tick(now);
    if (until !== null && now >= until) this._overdue(now);
    if (now >= this._choice.nextAt) this._choice.nextAt = 0;
    if (now >= this._choice.nextBy) this._stay(now);
    if (now >= this._choice.probeAt) {
      this._choice.probeAt = Infinity;
      this.effects.push({ kind: "probe", link: this._link.number });
    }
  }

  /** The network or the page is back: what waits for its time need not, unless the server said
   * when to come. */
  nudge(now: number): void {
    if (this._link.phase === "waiting" && !this._link.isTold) this._link.until = now;
    if (this._choice.probeAt < Infinity) this._choice.probeAt = now;
    this.tick(now);
  }

  private _overdue(now: number): void {
    const { phase, number } = this._link;
    if (phase === "waiting") {
      this._dial(now);
    } else if (phase !== "open" && this._choice.refused(NO_ANSWER)) {
      this._hangUp(number, GOING_AWAY);
      this._fallBack(now);
    } else {
      this._drop(number, GOING_AWAY, new ConnectionLost(OVERDUE[phase]!), now);
    }
  }

  /** Put what gathered into frames, as far as the connection and the limits allow. */
  flush(now: number): void {
    if (this._link.phase === "open") {
      for (const frame of this.consumer.outgoing(this._requests, now)) this._send(frame);
      const { next, nextAt } = this._choice;
      if (next || !this._isLeaving) {
        for (const frame of this.producer.outgoing(this._requests, now, !next)) this._send(frame);
      }
      if (next) {
        const isFree = !this._requests.size && this.producer.isFree && this.consumer.isFree;
        if (isFree && !nextAt) this._move(now);
      } else if (this._isLeaving && !this._requests.size && this.consumer.isIdle) {
        this._leave(now);
      }
    }
    this._finishIfDone();
  }

  /** After goaway, with nothing under way: go before we are cut off. */
  private _leave(now: number): void {
    this._hangUp(this._link.number, GOING_AWAY);
    this._disconnect(now, new ConnectionLost("the server asked us to leave"));
  }

  // Changing the transport

  /** What became of a probe. */
  probed(link: number, isGood: boolean, now: number): void {
    if (link !== this._link.number || this._link.phase !== "open" || this._closeBy !== null) return;
    this._choice.probed(isGood, now);
    this.consumer.isPaused = isGood;
  }

  /** Not now. */
  private _stay(now: number): void {
    this._choice.stay(now);
    this.consumer.unpause();
  }

  /** Nothing is under way: the other transport begins a session of its own. */
  private _move(now: number): void {
    this._giveBack();
    this._hangUp(this._link.number, NORMAL);
    this._choice.change();
    this._session = null;
    this.consumer.disconnected([]);
    this._change("connecting");
    this._dial(now);
  }

  /** There are no WebSockets to be had: with the session, if there was one, goes all it held. */
  private _fallBack(now: number): void {
    if (this._session) this.producer.moved();
    this._session = null;
    this._dial(now);
  }

  /** No session ends with a link of polling, so what it holds must be given back. */
  private _giveBack(): void {
    if (!this._choice.isPolling) return;
    for (const frame of this.consumer.surrender()) this._send(frame);
  }

  // The end

  /** End gracefully: take nothing more, wait for what is under way, close with 1000. */
  close(now: number, timeoutMs: number, ticket: Ticket | null = null): void {
    if (this.state === "closed") {
      if (ticket) this.effects.push({ kind: "resolve", ticket });
      return;
    }
    if (this._closeBy === null) this._closeTicket = ticket;
    this._closeBy = now + timeoutMs;
    this._choice.lost(null);
    for (const subscription of [...this.consumer.subscriptions]) {
      this.consumer.unsubscribe(subscription);
    }
    this._finishIfDone();
  }

  private _finishIfDone(): void {
    if (this._closeBy === null || this.state === "closed" || !this.producer.isIdle) return;
    const isOpen = this._link.phase === "open";
    if (isOpen ? this.consumer.isQuiet : this.consumer.isIdle) this._end(null);
  }

  private _end(error: PushlaneError | null): void {
    const { phase, number } = this._link;
    const reason = error ?? new ConnectionLost("the client is closed");
    if (phase === "open") this._giveBack();
    if (phase === "dialing" || phase === "greeting" || phase === "open") {
      this._hangUp(number, NORMAL);
    }
    this._link.close();
    this.consumer.disconnected(this._requests.clear());
    this.producer.failAll(reason);
    this.consumer.failAll(reason);
    this.error = this._closeBy === null ? error : null;
    if (this._startTicket) {
      this.effects.push({ kind: "reject", ticket: this._startTicket, error: reason });
    }
    this._startTicket = null;
    this._change("closed");
    if (this._closeTicket) this.effects.push({ kind: "resolve", ticket: this._closeTicket });
    this._closeTicket = null;
  }

  // Small things

  private _change(state: State): void {
    if (state === this.state) return;
    this.state = state;
    this.effects.push({ kind: "state", state, error: this.error });
  }

  private _send(frame: OutFrame): void {
    this.effects.push({ kind: "send", link: this._link.number, frame });
  }

  private _hangUp(link: number, code: number): void {
    this.effects.push({ kind: "hangup", link, code });
  }
}
