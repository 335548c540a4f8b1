/**
 * Consuming: subscriptions, and the messages that arrive for them.
 *
 * A message is handed out only while the connection is open, and its `start` is in the next flush:
 * so a shell that flushes before it calls a handler never works on what the server doesn't know to
 * be started.
 *
 * Leases end by the server's word or by our own clock, whichever is first: cut off from the server,
 * a handler is cancelled when its lease must be over, since somebody else may have the message
 * then.
 *
 * A subscribe whose answer was lost may have happened. It is asked again, and if the server does
 * send messages for a number we don't know, they go back at once and that number is unsubscribed.
 */

import { CLOSED, ConnectionLost, type PushlaneError } from "../wire/errors.js";
import type { Deliver, Subscribed } from "../wire/frames.js";
import { expand } from "../wire/receipts.js";
import { makeClocks } from "./clocks.js";
import { Lease, Phase, runs } from "./lease.js";
import type { Line, Question, Ticket } from "./line.js";
import { Patience } from "./retry.js";
import { GIVE_BACK, makeSettler } from "./settler.js";
import { Standing, Subscription, type Wanted } from "./subscription.js";

/** What a run of receipts counts at least … */
const RUN_CHARS = 24;
/** … so that a hello has at most 2,000 of them, and less than the 64 KiB that one may have. */
const HELD_CHARS = 2000 * RUN_CHARS;

export type Consumer = ReturnType<typeof makeConsumer>;

/** All subscriptions of a client. */
export function makeConsumer(line: Line) {
  let isConnected = false;
  const subscriptions = new Set<Subscription>();
  const bySub = new Map<number, Subscription>();
  /** Deliveries for subscriptions we don't know. */
  let strays: [sub: number, receipts: string[]][] = [];
  const clocks = makeClocks(subscriptions, line.settings.extendForMs);
  const settler = makeSettler(line, clocks, retries, forgetIfDone);
  const { dirty, add, lose } = settler;

  // Subscribing

  /** Ask for messages; the ticket resolves when it has begun. */
  function subscribe(wanted: Wanted, ticket?: Ticket): Subscription {
    const subscription = new Subscription(wanted, ticket);
    subscriptions.add(subscription);
    dirty.add(subscription);
    return subscription;
  }

  /** No more messages; what nobody has taken goes back, what was taken stays ours. */
  function unsubscribe(subscription: Subscription, ticket?: Ticket): void {
    const { standing, untaken } = subscription;
    if (standing >= Standing.Leaving) {
      ticket?.resolve();
      return;
    }
    begun(subscription, new ConnectionLost(CLOSED));
    for (const lease of untaken) {
      if (lease.phase === Phase.Reserved && lease.prefix) add(lease, GIVE_BACK);
    }
    subscription.untaken = [];
    subscription.endTicket = ticket;
    if (standing === Standing.Wanted) {
      end(subscription);
    } else {
      subscription.standing = Standing.Leaving;
      dirty.add(subscription);
      if (!isConnected) dismiss();
    }
  }

  /** Without a connection, who closed a subscription need not wait: the server is told when there is
   * one again. */
  function dismiss(): void {
    for (const subscription of subscriptions) {
      if (subscription.standing < Standing.Leaving) continue;
      subscription.endTicket?.resolve();
      subscription.endTicket = undefined;
    }
  }

  function unsubscribeAll(): void {
    for (const subscription of [...subscriptions]) unsubscribe(subscription);
  }

  /** Tell who waits for it to begin. */
  function begun(subscription: Subscription, error?: PushlaneError): void {
    const { ticket } = subscription;
    subscription.ticket = undefined;
    if (error) ticket?.reject(error);
    else ticket?.resolve();
  }

  /** It is over, with this error unless that was our wish. */
  function end(subscription: Subscription, error: PushlaneError | null = null): void {
    const { standing, endTicket, owner } = subscription;
    if (standing === Standing.Over) return;
    subscription.standing = Standing.Over;
    subscription.untaken = [];
    subscription.endTicket = undefined;
    endTicket?.resolve();
    owner.onEnded(standing >= Standing.Leaving ? null : error);
    forgetIfDone(subscription);
  }

  function forgetIfDone(subscription: Subscription): void {
    const { standing, settles, sub, owner } = subscription;
    if (standing !== Standing.Over || settles.size || subscription.held().length) return;
    dirty.delete(subscription);
    bySub.delete(sub!);
    if (subscriptions.delete(subscription)) owner.onGone?.();
  }

  /** The next message for somebody to work on. Flush before the work begins. */
  function take(subscription: Subscription, now: number): Lease | undefined {
    const { untaken, wanted, starts } = subscription;
    if (wanted.ack === "none") return untaken.shift();
    let lease: Lease | undefined;
    while (isConnected && (lease = untaken.shift())) {
      if (lease.phase !== Phase.Reserved) continue;
      clocks.wind(lease, now, lease.spanMs);
      clocks.turn(lease, Phase.Started);
      starts.push(lease);
      dirty.add(subscription);
      return lease;
    }
    return undefined;
  }

  // Frames to send

  /** Tell the server what it is to know now. */
  function flush(now: number): void {
    for (const [sub, receipts] of strays.splice(0)) {
      line.say({ op: "nack", delay_ms: 0, sub, receipts });
      line.ask({ op: "unsubscribe", sub }, {});
    }
    for (const subscription of [...dirty]) {
      if (subscription.retryAt > now) continue;
      subscription.retryAt = 0;
      dirty.delete(subscription);
      if (subscription.standing === Standing.Wanted) ask(subscription);
      else if (subscription.sub !== undefined) tell(subscription, subscription.sub, now);
    }
  }

  function ask(subscription: Subscription): void {
    subscription.standing = Standing.Asked;
    const again = () => {
      subscription.standing = Standing.Wanted;
      dirty.add(subscription);
    };
    const isAsked = () => subscription.standing === Standing.Asked; // else it was closed meanwhile
    line.ask({ op: "subscribe", start: "explicit", ...subscription.wanted } as Question, {
      onDone: (answer) => subscribed(subscription, (answer as Subscribed).sub),
      onRefused: (error, now) => {
        if (isAsked() && retries(subscription, error, now)) {
          again();
        } else {
          begun(subscription, error);
          end(subscription, error);
        }
      },
      onGone: () => (isAsked() ? again() : end(subscription)),
    });
  }

  function tell(subscription: Subscription, sub: number, now: number): void {
    settler.flush(subscription, sub, now);
    if (subscription.standing !== Standing.Leaving) return;
    subscription.standing = Standing.Parting;
    // Whether the server knew it or never heard of it is the same to us.
    const over = () => end(subscription);
    line.ask(
      { op: "unsubscribe", sub },
      {
        onDone: over,
        onRefused: over,
        onGone: () => {
          if (subscription.standing < Standing.Over) subscription.standing = Standing.Leaving;
          dirty.add(subscription);
        },
      },
    );
  }

  // Frames received

  /** Messages arrived. */
  function delivered({ sub, messages = [], dropped = 0 }: Deliver): void {
    const subscription = bySub.get(sub);
    if (!subscription) {
      const receipts = messages.flatMap(({ receipt }) => receipt ?? []);
      if (receipts.length) strays.push([sub, receipts]);
      return;
    }
    const { untaken, standing, wanted } = subscription;
    const isLive = standing === Standing.Live;
    if (wanted.ack === "none") {
      const room = isLive ? line.settings.buffered - untaken.length : 0;
      for (const message of messages.slice(0, room)) untaken.push(new Lease(subscription, message));
      if (isLive) subscription.dropped += dropped + Math.max(0, messages.length - room);
    } else {
      for (const message of messages) {
        const lease = new Lease(subscription, message);
        if (!lease.prefix || !subscription.hold(lease)) continue;
        if (isLive) untaken.push(lease);
        else add(lease, GIVE_BACK);
      }
    }
    if (untaken.length) subscription.owner.onReady();
  }

  function subscribed(subscription: Subscription, sub: number): void {
    subscription.sub = sub;
    subscription.patience = undefined;
    bySub.set(sub, subscription);
    if (subscription.standing === Standing.Asked) {
      subscription.standing = Standing.Live;
      begun(subscription);
    } else {
      dirty.add(subscription);
    }
  }

  /** The server ended a subscription. */
  function ended(sub: number, error: PushlaneError): void {
    const subscription = bySub.get(sub);
    if (!subscription) return;
    for (const lease of subscription.held()) {
      if (lease.phase === Phase.Reserved) lose(lease);
    }
    end(subscription, error);
  }

  /** Leases ended under us. */
  function leasesLost(sub: number, receipts: string[]): void {
    const subscription = bySub.get(sub);
    if (!subscription) return;
    const lost = expand(receipts);
    for (const lease of subscription.held()) {
      // Of what we are settling the answer decides: it may have been done.
      if (lease.phase !== Phase.Settling && lost.has(lease.receipt)) lose(lease);
    }
    forgetIfDone(subscription);
  }

  /** Whether something is to be sent again, and when. */
  function retries(subscription: Subscription, error: PushlaneError, now: number): boolean {
    const at = (subscription.patience ??= new Patience()).retryAt(line, error, now);
    if (at === undefined) subscription.patience = undefined;
    else subscription.retryAt = at;
    return at !== undefined;
  }

  // Connections

  /**
   * The receipts we have, by the server's number of its subscription. As many as a hello may have:
   * the others come again under the same receipts, and are ignored.
   */
  function held(): Record<string, string[]> {
    let room = HELD_CHARS;
    const fits = (run: string) => (room -= Math.max(RUN_CHARS, run.length + 3)) >= 0;
    return Object.fromEntries(
      [...bySub].map(([sub, subscription]) => [sub, runs(subscription.held()).filter(fits)]),
    );
  }

  function disconnected(): void {
    isConnected = false;
    strays = [];
  }

  /** The session goes on: tell the server again what it may have missed. */
  function resumed(lost: Record<string, string[]>, now: number): void {
    isConnected = true;
    for (const [sub, receipts] of Object.entries(lost)) leasesLost(+sub, receipts);
    for (const lease of clocks.started()) {
      lease.source.starts.push(lease);
      dirty.add(lease.source);
    }
    clocks.forgive(now);
    for (const subscription of subscriptions) {
      subscription.retryAt = 0;
      if (subscription.untaken.length) subscription.owner.onReady();
    }
  }

  /** The session is gone and with it all we held: begin again, or with an error not at all. */
  function restarted(error?: PushlaneError): void {
    isConnected = !error;
    bySub.clear();
    for (const subscription of new Set([...subscriptions, ...dirty])) {
      subscription.sub = undefined;
      subscription.retryAt = 0;
      settler.loseAll(subscription, error);
      if (subscription.wanted.ack !== "none") subscription.untaken = [];
      if (error) begun(subscription, error);
      if (error || subscription.standing >= Standing.Leaving) {
        end(subscription, error);
      } else {
        subscription.standing = Standing.Wanted;
        dirty.add(subscription);
      }
      forgetIfDone(subscription);
    }
  }

  // Time

  /** When a lease may need something, or something may be tried again. */
  function wakeAt(): number {
    let at = clocks.wakeAt();
    for (const { retryAt } of dirty) if (retryAt) at = Math.min(at, retryAt);
    return at;
  }

  /** Extend what is kept, and give up what ran out. */
  function tick(now: number): void {
    clocks.look(
      now,
      isConnected,
      (lease) => add(lease, { op: "extend", lease_ms: lease.spanMs }),
      (lease) => {
        lose(lease);
        forgetIfDone(lease.source);
      },
    );
  }

  /** Nobody works on a message that is kept for them, and every settle is answered. */
  function isIdle(): boolean {
    return settler.isIdle() && !clocks.isAnyKept();
  }

  /** The same of what was taken: nobody misses the answer to what was only given back. */
  function isSettled(): boolean {
    const isMissed = ({ phase, deadline }: Lease) => phase === Phase.Settling && deadline;
    return (
      !clocks.isAnyKept() && ![...subscriptions].some((source) => source.held().some(isMissed))
    );
  }

  /** Nothing is under way on the server's side either. */
  function isQuiet(): boolean {
    const isBusy = ({ standing }: Subscription) =>
      standing > Standing.Live && standing < Standing.Over;
    return isIdle() && ![...subscriptions].some(isBusy);
  }

  return {
    clocks, settler, subscribe, unsubscribe, unsubscribeAll, take, flush, delivered, ended,
    leasesLost, held, disconnected, resumed, restarted, wakeAt, tick, isIdle, isQuiet,
    isSettled, dismiss,
  }; // prettier-ignore
}
