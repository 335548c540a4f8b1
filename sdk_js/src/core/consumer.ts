/**
 * Consuming: subscriptions, and the messages that arrive for them.
 *
 * A message is handed out only while the connection is open, and its `start` is in the next flush:
 * so a shell that flushes before it calls a handler never works on what the server doesn't know to
 * be started.
 *
 * Leases end by the server's word or by our own clock, whichever is first: cut off from the server,
 * a handler is cancelled when its lease must be over, since somebody else may have the message
 * then. When polling there is no `start`: a lease runs from its delivery on.
 *
 * A subscribe whose answer was lost may have happened. It is asked again, and if the server does
 * send messages for a number we don't know, they go back at once and that number is unsubscribed.
 */

import { badRequest, ConnectionLost, type PushlaneError } from "../wire/errors.js";
import type { Deliver, DeliverMessage, Done, Nack, Subscribe, Subscribed } from "../wire/frames.js";
import { checkTarget } from "../wire/names.js";
import type { Limits } from "../wire/tables.js";
import { Clocks } from "./clocks.js";
import type { Effect, Ticket } from "./effects.js";
import type { OutFrame } from "./frame.js";
import { Lease } from "./lease.js";
import { checkRange } from "./options.js";
import { Patience } from "./patience.js";
import type {
  Request,
  Requests,
  SettleRequest,
  SubscribeRequest,
  UnsubscribeRequest,
} from "./requests.js";
import type { Settings } from "./settings.js";
import { GIVE_BACK, type Kind, runs } from "./settle.js";
import { gone, Settler } from "./settler.js";
import { type AckMode, Subscription } from "./subscription.js";

/** All subscriptions of a client. */
export class Consumer {
  isConnected = false;
  isPolling = false;
  /** The client is about to change its transport: no message is taken that can still go back, and
   * none is asked for. */
  isPaused = false;
  readonly subscriptions = new Set<Subscription>();
  readonly clocks: Clocks;
  private _byNumber = new Map<number, Subscription>();
  private _settler: Settler;
  private _dirty: Set<Subscription>;
  /** Deliveries for subscriptions we don't know. */
  private _strays: [sub: number, receipts: string[]][] = [];

  constructor(
    private _settings: Settings,
    private _effects: Effect[],
    private _random: () => number,
  ) {
    this.clocks = new Clocks(_settings.extendForMs, this.subscriptions);
    this._settler = new Settler(_effects, this.clocks);
    this._dirty = this._settler.dirty;
  }

  setLimits(limits: Limits): void {
    this._settler.limits = limits;
  }

  // Subscribing

  /** Ask for messages; throws `bad_request` for options outside the server's limits. */
  subscribe(
    queue: string,
    credit: number,
    ack: AckMode,
    leaseMs: number | undefined,
    ticket: Ticket | null,
  ): Subscription {
    const { limits } = this._settler;
    checkTarget(queue);
    if (ack !== "explicit" && ack !== "none") {
      throw badRequest(`ack is ${String(ack)}: explicit or none`);
    }
    checkRange("credit", credit, 1, limits.credit);
    checkRange("leaseMs", leaseMs, limits.lease_ms_min, limits.lease_ms_max);
    const subscription = new Subscription(queue, credit, ack, leaseMs, ticket);
    this.subscriptions.add(subscription);
    this._dirty.add(subscription);
    return subscription;
  }

  /** No more messages; what nobody has taken goes back, what was taken stays ours. */
  unsubscribe(subscription: Subscription, ticket: Ticket | null = null): void {
    if (subscription.standing === "leaving" || subscription.standing === "over") {
      this._resolve(ticket);
      return;
    }
    this._settler.reject(subscription.ticket, new ConnectionLost("the subscription was closed"));
    subscription.ticket = null;
    for (const lease of subscription.ready) {
      if (lease.phase === "reserved" && lease.prefix) this._settler.add(lease, GIVE_BACK, null);
    }
    subscription.ready.clear();
    subscription.endTicket = ticket;
    if (subscription.standing === "wanted") {
      this._end(subscription, null);
      return;
    }
    subscription.standing = "leaving";
    this._dirty.add(subscription);
  }

  private _end(subscription: Subscription, error: PushlaneError | null): void {
    subscription.standing = "over";
    subscription.ready.clear();
    this._resolve(subscription.endTicket);
    subscription.endTicket = null;
    this._effects.push({ kind: "ended", subscription, error });
    this._forgetIfDone(subscription);
  }

  private _forgetIfDone(subscription: Subscription): void {
    const isBusy = subscription.held.size || subscription.settles.size;
    if (subscription.standing !== "over" || isBusy) return;
    this.subscriptions.delete(subscription);
    this._dirty.delete(subscription);
    if (subscription.number !== null) this._byNumber.delete(subscription.number);
    this._resolve(subscription.goneTicket);
    subscription.goneTicket = null;
  }

  // Taking and settling

  /** The next message for somebody to work on. Flush before the work begins. */
  take(subscription: Subscription, now: number): Lease | undefined {
    const { ready } = subscription;
    if (subscription.ack === "none") return ready.shift();
    if (!this.isConnected || (this.isPaused && !this.isPolling)) return undefined;
    for (let lease = ready.shift(); lease; lease = ready.shift()) {
      if (lease.phase !== "reserved") continue;
      lease.phase = "started";
      if (!this.isPolling) {
        this.clocks.start(lease, now);
        subscription.starts.push(lease);
        this._dirty.add(subscription);
      }
      return lease;
    }
    return undefined;
  }

  /** Ack, nack or extend a message that was taken. */
  settle(lease: Lease, kind: Kind, ticket: Ticket | null): void {
    this._settler.settle(lease, kind, ticket);
  }

  // Frames to send

  /** What the server is to be told now. */
  *outgoing(requests: Requests, now: number): Generator<OutFrame> {
    for (const [sub, receipts] of this._strays) {
      yield { op: "nack", sub, receipts, delay_ms: 0 };
      const id = requests.add({ kind: "unsubscribe", subscription: null });
      yield { op: "unsubscribe", id, sub };
    }
    this._strays = [];
    for (const subscription of [...this._dirty]) {
      if (subscription.retryAt > now) continue;
      subscription.retryAt = 0;
      this._dirty.delete(subscription);
      yield* this._framesOf(subscription, requests, now);
    }
  }

  private *_framesOf(
    subscription: Subscription,
    requests: Requests,
    now: number,
  ): Generator<OutFrame> {
    const sub = subscription.number;
    if (subscription.standing === "wanted") {
      subscription.standing = "asked";
      yield this._subscribeFrame(subscription, requests);
    } else if (sub !== null) {
      yield* this._settler.starts(subscription, sub);
      yield* this._settler.settles(subscription, sub, requests, now);
      if (subscription.standing === "leaving" && !subscription.isLeavingSaid) {
        subscription.isLeavingSaid = true;
        yield {
          op: "unsubscribe",
          id: requests.add({ kind: "unsubscribe", subscription }),
          sub,
        };
      }
    }
  }

  private _subscribeFrame(subscription: Subscription, requests: Requests): Subscribe {
    const { queue, credit, ack, leaseMs } = subscription;
    return {
      op: "subscribe",
      id: requests.add({ kind: "subscribe", subscription }),
      from: queue,
      credit,
      ...(ack === "none" && { ack }),
      ...(!this.isPolling && { start: "explicit" as const }),
      ...(leaseMs !== undefined && { lease_ms: leaseMs }),
    };
  }

  // Frames received

  /** Messages arrived. */
  delivered(frame: Deliver, now: number): void {
    const subscription = this._byNumber.get(frame.sub);
    if (!subscription) {
      const receipts = frame.messages.flatMap(({ receipt }) => receipt ?? []);
      if (receipts.length) this._strays.push([frame.sub, receipts]);
    } else if (subscription.ack === "none") {
      this._deliveredUnleased(subscription, frame);
    } else {
      this._deliveredLeased(subscription, frame.messages, now);
    }
  }

  private _deliveredLeased(
    subscription: Subscription,
    messages: DeliverMessage[],
    now: number,
  ): void {
    const { held, ready } = subscription;
    const isLive = subscription.standing === "live";
    for (const message of messages) {
      const lease = new Lease(subscription, message);
      if (!lease.prefix || !held.add(lease)) continue;
      if (this.isPolling) this.clocks.start(lease, now);
      if (isLive) ready.push(lease);
      else this._settler.add(lease, GIVE_BACK, null);
    }
    if (ready.length) this._effects.push({ kind: "ready", subscription });
  }

  private _deliveredUnleased(subscription: Subscription, frame: Deliver): void {
    if (subscription.standing !== "live") return;
    const room = Math.max(0, this._settings.buffered - subscription.ready.length);
    const kept = frame.messages.slice(0, room);
    subscription.dropped += (frame.dropped ?? 0) + frame.messages.length - kept.length;
    for (const message of kept) subscription.ready.push(new Lease(subscription, message));
    if (kept.length) this._effects.push({ kind: "ready", subscription });
  }

  /** A subscription has begun. */
  subscribed({ subscription }: SubscribeRequest, frame: Subscribed): void {
    subscription.number = frame.sub;
    subscription.patience = null;
    this._byNumber.set(frame.sub, subscription);
    if (subscription.standing === "asked") {
      subscription.standing = "live";
      this._resolve(subscription.ticket);
      subscription.ticket = null;
    } else {
      this._dirty.add(subscription);
    }
  }

  /** Ask again if that makes sense, else it is over. */
  subscribeRefused({ subscription }: SubscribeRequest, error: PushlaneError, now: number): void {
    if (subscription.standing !== "asked") {
      this._end(subscription, null);
    } else if (this._retry(subscription, error, now)) {
      subscription.standing = "wanted";
      this._dirty.add(subscription);
    } else {
      this._settler.reject(subscription.ticket, error);
      subscription.ticket = null;
      this._end(subscription, error);
    }
  }

  /** The server knows, or never heard of it: the same to us. */
  unsubscribed({ subscription }: UnsubscribeRequest): void {
    if (subscription?.standing === "leaving") this._end(subscription, null);
  }

  /** The server ended a subscription. */
  ended(sub: number, error: PushlaneError): void {
    const subscription = this._byNumber.get(sub);
    if (!subscription || subscription.standing === "over") return;
    for (const lease of subscription.held.values()) {
      if (lease.phase === "reserved") this._settler.lose(lease);
    }
    this._end(subscription, subscription.standing === "leaving" ? null : error);
  }

  /** Leases ended under us. */
  leasesLost(sub: number, receipts: string[]): void {
    const subscription = this._byNumber.get(sub);
    if (!subscription) return;
    this._settler.loseReceipts(subscription, receipts);
    this._forgetIfDone(subscription);
  }

  /** The answer to a settle. */
  done(request: SettleRequest, frame: Done): void {
    this._settler.done(request, frame);
    request.settle.subscription.patience = null;
    this._forgetIfDone(request.settle.subscription);
  }

  /** Send it again if that makes sense; else the lease is ours as before. */
  settleRefused({ settle }: SettleRequest, error: PushlaneError, now: number): void {
    if (this._retry(settle.subscription, error, now)) {
      this._settler.again(settle);
    } else {
      this._settler.refused(settle, error, now);
      this._forgetIfDone(settle.subscription);
    }
  }

  private _retry(subscription: Subscription, error: PushlaneError, now: number): boolean {
    subscription.patience ??= new Patience(this._settings, this._random);
    const at = subscription.patience.retryAt(error, now);
    if (at === null) subscription.patience = null;
    else subscription.retryAt = at;
    return at !== null;
  }

  // Polling

  /** How many messages of a subscription may come; null: it is over for good; less than 0: no more
   * than those that were asked for. */
  room(sub: number): number | null {
    const subscription = this._byNumber.get(sub);
    if (!subscription) return null;
    if (subscription.standing !== "live") return 0;
    if (this.isPaused) return -1;
    const { ack, credit, held, ready, wanted } = subscription;
    if (ack === "none") return Math.max(0, this._settings.buffered - ready.length);
    return Math.max(0, Math.min(credit - held.size, wanted - ready.length));
  }

  /** Give back what is in anybody's hands: the client ends, and no session ends with it. */
  *surrender(): Generator<Nack> {
    for (const [sub, { held }] of this._byNumber) {
      const leases = held.values().filter(({ phase }) => phase !== "settling" && phase !== "over");
      const receipts = runs(leases);
      if (receipts.length) yield { op: "nack", sub, receipts, delay_ms: 0 };
    }
  }

  // Connections

  /** Every receipt we have, by the server's number of its subscription. */
  held(): Record<string, string[]> {
    return Object.fromEntries(
      [...this._byNumber].map(([sub, { held }]) => [sub, runs(held.values())]),
    );
  }

  /** What was asked and not answered is to be asked again. */
  disconnected(requests: Request[]): void {
    this.isConnected = false;
    this._strays = [];
    for (const request of requests.reverse()) {
      if (request.kind === "settle") {
        this.subscriptions.add(request.settle.subscription);
        this._settler.again(request.settle);
      } else if (request.kind === "subscribe") {
        this._unasked(request.subscription);
      } else if (request.kind === "unsubscribe" && request.subscription) {
        request.subscription.isLeavingSaid = false;
        this._dirty.add(request.subscription);
      }
    }
  }

  private _unasked(subscription: Subscription): void {
    if (subscription.standing === "asked") {
      subscription.standing = "wanted";
      this._dirty.add(subscription);
    } else {
      this._end(subscription, null); // closed meanwhile
    }
  }

  /** The session goes on: tell the server again what it may have missed. */
  resumed(lost: Record<string, string[]>, now: number): void {
    this.isConnected = true;
    for (const [sub, receipts] of Object.entries(lost)) this.leasesLost(Number(sub), receipts);
    if (this.isPolling) {
      this.clocks.doubt(now); // only their extension tells what became of them
    } else {
      for (const lease of this.clocks.running()) {
        lease.subscription.starts.push(lease);
        this._dirty.add(lease.subscription);
      }
      this.clocks.forgive(now);
    }
    for (const subscription of this.subscriptions) subscription.retryAt = 0;
    this.unpause();
  }

  /** What is ready may be taken, again. */
  unpause(): void {
    this.isPaused = false;
    for (const subscription of this.subscriptions) {
      if (subscription.ready.length) this._effects.push({ kind: "ready", subscription });
    }
  }

  /** The session is gone and with it all we held: begin anew. */
  restarted(): void {
    this.isConnected = true;
    this.isPaused = false;
    this._byNumber.clear();
    for (const subscription of [...this.subscriptions]) {
      subscription.number = null;
      subscription.retryAt = 0;
      this._settler.loseAll(subscription, gone);
      if (subscription.ack === "explicit") subscription.ready.clear();
      if (subscription.standing === "leaving") {
        this._end(subscription, null);
      } else if (subscription.standing === "over") {
        this._forgetIfDone(subscription);
      } else {
        subscription.standing = "wanted";
        this._dirty.add(subscription);
      }
    }
  }

  // Time

  /** When a lease may need something, or something may be tried again. */
  wakeAt(): number {
    let at = this.clocks.wakeAt();
    for (const { retryAt } of this._dirty) if (retryAt && retryAt < at) at = retryAt;
    return at;
  }

  /** Extend what is kept, and give up what ran out. */
  tick(now: number): void {
    const extend = (lease: Lease) =>
      this._settler.add(lease, { op: "extend", lease_ms: lease.message.lease_ms! }, null);
    const lose = (lease: Lease) => {
      this._settler.lose(lease);
      this._forgetIfDone(lease.subscription);
    };
    this.clocks.look(now, this.isConnected, extend, lose);
  }

  // The end

  /** Nobody works on a message that is kept for them, and every settle is answered. */
  get isIdle(): boolean {
    return !this._settler.pending && !this.clocks.isKept;
  }

  /** Nobody works on a message, and every settle is answered: no lease would be missed. */
  get isFree(): boolean {
    for (const { held } of this.subscriptions) {
      for (const { phase } of held.values()) if (phase !== "reserved") return false;
    }
    return true;
  }

  /** Nothing is under way on the server's side either. */
  get isQuiet(): boolean {
    return (
      this.isIdle &&
      ![...this.subscriptions].some(
        ({ standing }) => standing === "asked" || standing === "leaving",
      )
    );
  }

  /** No connection will come any more. */
  failAll(error: PushlaneError): void {
    this.isConnected = false;
    for (const subscription of [...this.subscriptions]) {
      this._settler.loseAll(subscription, () => error);
      this._settler.reject(subscription.ticket, error);
      subscription.ticket = null;
      if (subscription.standing !== "over") {
        this._end(subscription, subscription.standing === "leaving" ? null : error);
      }
      this._forgetIfDone(subscription);
    }
    this.subscriptions.clear();
    this._dirty.clear();
    this._byNumber.clear();
  }

  private _resolve(ticket: Ticket | null): void {
    if (ticket) this._effects.push({ kind: "resolve", ticket });
  }
}
