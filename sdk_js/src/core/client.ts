/**
 * The client: one state machine over connections, publishes, subscriptions and the end.
 *
 * A shell reports what happens (`connected`, `received`, `lost`, `tick`) and what users call; each
 * takes `now`, in milliseconds of any steady clock. Then it calls `flush`, which puts what gathered
 * into frames. It wakes up again at `wakeAt` at the latest, for a `tick`. What is to be done the
 * core tells the shell, tickets and owners at once, and none of them may call back into it before
 * the call is over.
 *
 *     const core = makeCore(shell, { producer: "p-1", random: Math.random, settings });
 *     core.start(now);                        // shell.dial(1, "ws")
 *     core.connected(1, token);               // shell.send(1, hello)
 *     core.received(1, [welcome], now);       // shell.changed("open")
 *     core.producer.publish("orders", publication, now);
 *     core.flush(now);                        // shell.send(1, publish)
 *
 * Hello goes first and waits for its welcome: only that says what is left of the session, and so
 * what to send. A server that closes says whether to come back (`CLOSES`); after its goaway we
 * always do. Nothing here awaits, reads a clock or draws a random number.
 */

import { canRetry, CLOSED, ConnectionLost, PushlaneError } from "../wire/errors.js";
import type { Resume, ServerFrame, Welcome } from "../wire/frames.js";
import { limitsOf } from "../wire/limits.js";
import { CLOSES, RETRY, STATUS } from "../wire/tables.js";
import { makeChoice, NO_ANSWER } from "./choice.js";
import { makeConsumer } from "./consumer.js";
import type { Lease } from "./lease.js";
import type { Pending, Question, Ticket } from "./line.js";
import { makeLink, Stage } from "./link.js";
import { makeProducer } from "./producer.js";
import type { CoreOptions, Loss, Shell, State } from "./shell.js";
import type { Subscription } from "./subscription.js";
import { Table } from "./table.js";

const NORMAL = 1000;
const GOING_AWAY = 1001;
const ABNORMAL = 1006;

export type Core = ReturnType<typeof makeCore>;

/** The sans-I/O client; see the top of the file. */
export function makeCore(shell: Shell, options: CoreOptions) {
  const { settings, random, transport = "ws" } = options;
  let asked = new Table<Pending>();
  /** Counted over all connections, so that no answer is taken for that of another question. */
  let lastId = 0;
  let session: string | undefined;
  let startTicket: Ticket | undefined;
  const closeTickets: Ticket[] = [];
  let closeBy = Infinity;
  /** For one that is closed: how long it waits for more than it needs; Infinity: no longer. */
  let patientUntil = Infinity;
  /** Between goaway and the end of this connection. */
  let isLeaving = false;

  const line = { settings, random, limits: limitsOf(), asking, say, ask };
  const producer = makeProducer(line);
  const consumer = makeConsumer(line);
  const link = makeLink(line);
  const choice = makeChoice(line, transport);
  const core = Object.assign(line, {
    state: "connecting" as State,
    /** Why it closed, if not by our wish. */
    error: null as PushlaneError | null,
    producer, consumer, start, isChoosing, connected, received, lost, take: takeNext, checkOpen,
    wakeAt, tick, nudge, flush, probed, close,
  }); // prettier-ignore
  return core;

  // Starting, and what happens to connections

  /** Connect; the ticket resolves with the first welcome. */
  function start(now: number, ticket?: Ticket): void {
    startTicket = ticket;
    link.giveUpAt = now + settings.connectMs;
    dial(now);
  }

  function dial(now: number): void {
    const { isPolling, isMade } = choice;
    shell.dial(link.begin(now, !isMade), isPolling ? "poll" : "ws");
  }

  /** Whether it is still open which transport it will be. */
  function isChoosing(): boolean {
    return !choice.isMade;
  }

  /** The socket of this link is open. */
  function connected(of: number, token: string | undefined): void {
    if (of !== link.number || link.stage !== Stage.Dialing) {
      shell.hangUp(of, GOING_AWAY);
      return;
    }
    const { name, producer } = options;
    link.stage = Stage.Greeting;
    const resume: Resume | undefined = session ? { session, held: consumer.held() } : undefined;
    say({ op: "hello", token, client: name, producer, resume });
  }

  function hears(of: number): boolean {
    const { number, stage } = link;
    return of === number && (stage === Stage.Greeting || stage === Stage.Open);
  }

  /** Frames arrived; undefined stands for what is none. */
  function received(of: number, frames: unknown[], now: number): void {
    for (const frame of frames) {
      if (!hears(of)) return;
      if (frame && typeof frame === "object") take(frame as ServerFrame, now);
      else drop(new ConnectionLost("no frame"), now);
    }
    link.heard(now);
  }

  /** The connection is gone, or the attempt failed. */
  function lost(
    of: number,
    now: number,
    { code = ABNORMAL, reason = "", error, refused }: Loss = {},
  ) {
    const { stage, number, openedAt } = link;
    if (of !== number || stage === Stage.Closed || stage === Stage.Waiting) return;
    if (stage === Stage.Greeting && code === ABNORMAL && !error) refused = NO_ANSWER;
    if (choice.refused(refused)) {
      dial(now);
      return;
    }
    // A reason that may be repeated says to connect again, whatever the close code does.
    const final = STATUS[reason]! >= RETRY ? undefined : CLOSES[code];
    const said = `closed with ${code} ${reason}`;
    const fault =
      error ?? (final ? new PushlaneError(reason || final, said) : new ConnectionLost(said));
    if (!isLeaving && (final || !canRetry(fault))) {
      if (!repents(now)) {
        link.stage = Stage.Closed;
        end(fault);
      }
    } else {
      const wasCut = stage === Stage.Open && code === ABNORMAL && !error && !isLeaving;
      choice.lost(wasCut ? now - openedAt : undefined);
      comeBack(now, fault);
    }
  }

  /** The server wants nothing of us: whether we try it the other way. */
  function repents(now: number): boolean {
    const repents = link.stage === Stage.Greeting && choice.repents();
    if (repents) change(now);
    return repents;
  }

  /** Connect the other way. The session goes on there, with all that it holds. */
  function change(now: number): void {
    shell.hangUp(link.number, GOING_AWAY);
    unlink(now);
    tell("connecting");
    dial(now);
  }

  /** Cut the connection ourselves, and come back. */
  function drop(fault: PushlaneError, now: number): void {
    shell.hangUp(link.number, GOING_AWAY);
    choice.lost();
    comeBack(now, new ConnectionLost(fault.message, fault.retryMs));
  }

  function comeBack(now: number, error: PushlaneError): void {
    unlink(now);
    link.wait(now, error.retryMs);
    if (link.dueAt >= link.giveUpAt) {
      end(error);
    } else {
      tell("connecting");
      finishIfDone();
    }
  }

  /** What this connection leaves unanswered is the next one's. */
  function unlink(now: number): void {
    if (link.stage === Stage.Open) patientUntil = now + settings.awayMs;
    const left = asked.all().reverse();
    asked = new Table();
    producer.disconnected();
    consumer.disconnected();
    for (const { onGone } of left) onGone?.();
    consumer.dismiss();
    isLeaving = false;
  }

  // Frames

  function asking(): number {
    return asked.count;
  }

  function say(frame: object, messages?: string[]): void {
    const text = JSON.stringify(frame);
    const more = messages ? `${text.slice(0, -1)},"messages":[${messages.join()}]}` : text;
    shell.send(link.number, more);
  }

  function ask(question: Question, pending: Pending, messages?: string[]): void {
    asked.put(++lastId, pending);
    say({ ...question, id: lastId }, messages);
  }

  function take(frame: ServerFrame, now: number): void {
    switch (frame.op) {
      case "deliver":
        return consumer.delivered(frame);
      case "published":
      case "subscribed":
      case "done":
        return asked.drop(frame.id)?.onDone?.(frame, now);
      case "lease_lost":
        return consumer.leasesLost(frame.sub, frame.receipts);
      case "ended":
        return consumer.ended(frame.sub, new PushlaneError(frame.code, frame.message));
      case "welcome":
        return welcome(frame, now);
      case "goaway":
        isLeaving = true;
        link.reconnectMs = frame.reconnect_ms;
        return;
      case "error": {
        const { id, code, message, retry_ms } = frame;
        return refused(id, new PushlaneError(code, message, retry_ms), now);
      } // else it is from a newer server: not for us
    }
  }

  function welcome(frame: Welcome, now: number): void {
    if (link.stage !== Stage.Greeting) return;
    link.opened(now, frame.heartbeat_ms);
    patientUntil = now + settings.hangupMs;
    core.limits = limitsOf(frame.limits);
    if (frame.resumed && frame.session === session) {
      consumer.resumed(frame.lost ?? {}, now);
    } else {
      consumer.restarted();
    }
    session = frame.session;
    choice.welcomed(now);
    tell(choice.isPolling ? "polling" : "open");
    startTicket?.resolve();
    startTicket = undefined;
  }

  function refused(id: number | null | undefined, error: PushlaneError, now: number): void {
    const pending = asked.drop(id ?? 0);
    if (link.stage !== Stage.Greeting) {
      pending?.onRefused?.(error, now);
    } else if (canRetry(error)) {
      drop(error, now);
    } else if (!repents(now)) {
      end(error);
    }
  }

  // What users call

  /** The next message to work on, if there is one and it may begin now. Then flush. */
  function takeNext(subscription: Subscription, now: number): Lease | undefined {
    return isClosing() ? undefined : consumer.take(subscription, now);
  }

  function isClosing(): boolean {
    return closeBy < Infinity;
  }

  /** Throw why nothing more can be asked for, if so. */
  function checkOpen(): void {
    if (core.state === "closed" || isClosing()) throw core.error ?? new ConnectionLost(CLOSED);
  }

  // Time

  /** When to call `tick` at the latest. */
  function wakeAt(): number {
    const { stage, dueAt } = link;
    if (stage === Stage.Closed) return Infinity;
    const at = Math.min(dueAt, choice.probeAt, closeBy, isClosing() ? patientUntil : Infinity);
    return Math.min(at, producer.wakeAt(), consumer.wakeAt());
  }

  /** Do what is due. */
  function tick(now: number): void {
    const { stage, dueAt, number } = link;
    if (stage === Stage.Closed) return;
    if (now >= closeBy) {
      end();
      return;
    }
    if (now >= patientUntil) patientUntil = Infinity;
    producer.tick(now);
    consumer.tick(now);
    if (now >= dueAt) overdue(now);
    if (now >= choice.probeAt) {
      choice.probeAt = Infinity;
      shell.probe(number);
    }
  }

  /** The network or the page is back: what waits for its time need not, unless the server said
   * when to come. */
  function nudge(now: number): void {
    if (link.stage === Stage.Waiting && !link.isTold) link.dueAt = now;
    if (choice.probeAt < Infinity) choice.probeAt = now;
    tick(now);
  }

  function overdue(now: number): void {
    const { stage } = link;
    if (stage === Stage.Waiting) {
      dial(now);
    } else if (stage !== Stage.Open && choice.refused(NO_ANSWER)) {
      change(now);
    } else {
      drop(new ConnectionLost("no answer"), now);
    }
  }

  /** Put what gathered into frames, as far as the connection and the limits allow. */
  function flush(now: number): void {
    if (link.stage === Stage.Open) {
      consumer.flush(now);
      if (!isLeaving) {
        producer.flush(now);
      } else if (!asking() && consumer.isIdle()) {
        // Nothing is under way: go before we are cut off.
        drop(new ConnectionLost("goaway"), now);
      }
    }
    finishIfDone();
  }

  /** What became of a probe. */
  function probed(of: number, isGood: boolean, now: number): void {
    if (!hears(of) || isClosing()) return;
    if (isGood) {
      choice.change();
      change(now);
    } else {
      choice.probeLater(now);
    }
  }

  // The end

  /** End gracefully: take nothing more, wait for what is under way, close with 1000.
   *
   * Handlers have all the time there is, and so have answers of a server that is there. What nobody
   * misses, the goodbye of subscriptions, has `hangupMs`; a server that is not there has `awayMs` to
   * come back, and only when an answer of it is missed. */
  function close(now: number, timeoutMs: number, ticket?: Ticket): void {
    if (core.state === "closed") {
      ticket?.resolve();
      return;
    }
    if (ticket) closeTickets.push(ticket);
    closeBy = now + timeoutMs;
    patientUntil = now + (link.stage === Stage.Open ? settings.hangupMs : settings.awayMs);
    choice.probeAt = Infinity;
    consumer.unsubscribeAll();
    finishIfDone();
  }

  function finishIfDone(): void {
    if (!isClosing() || core.state === "closed") return;
    const isOpen = link.stage === Stage.Open;
    const isPatient = patientUntil < Infinity;
    const isDone =
      isOpen || isPatient
        ? producer.isIdle() && (isOpen && isPatient ? consumer.isQuiet() : consumer.isSettled())
        : !consumer.clocks.isAnyKept();
    if (isDone) end();
  }

  function end(error: PushlaneError | null = null): void {
    const { stage, number } = link;
    const reason = error ?? new ConnectionLost(CLOSED);
    if (stage !== Stage.Waiting && stage !== Stage.Closed) shell.hangUp(number, NORMAL);
    link.stage = Stage.Closed;
    unlink(0);
    producer.end(reason);
    consumer.restarted(reason);
    core.error = isClosing() ? null : error;
    startTicket?.reject(reason);
    tell("closed");
    for (const ticket of closeTickets) ticket.resolve();
  }

  function tell(state: State): void {
    if (state === core.state) return;
    core.state = state;
    shell.changed(state, core.error);
  }
}
