/**
 * Publishing: from a caller's message to its id, over as many connections as it takes.
 *
 * Messages gather in the outbox of their queue. A flush puts them into frames: as many as the
 * frame, the server's window and the queue's span of sequence numbers allow. Answers resolve them
 * one by one; what is throttled or unavailable goes again with the same number, within a bounded
 * time; when the connection is lost everything unanswered goes again on the next, and the server
 * tells the repeats from the first by (producer, seq).
 *
 * A sequence counts one queue's messages: so it has no gaps there, whatever else the client sends.
 */

import { ConnectionLost, errorFor, internal, PushlaneError } from "../wire/errors.js";
import type { Published as PublishedFrame } from "../wire/frames.js";
import { DEFAULT_LIMITS } from "../wire/limits.js";
import { checkTarget } from "../wire/names.js";
import type { Limits } from "../wire/tables.js";
import type { Effect, Ticket } from "./effects.js";
import type { PublishFrame } from "./frame.js";
import { Fifo } from "./fifo.js";
import { Outbox } from "./outbox.js";
import { Patience } from "./patience.js";
import { FRAME_OVERHEAD, type Publication, type Published } from "./publication.js";
import type { PublishRequest, Requests } from "./requests.js";
import type { Settings } from "./settings.js";

/** Callers let in at once who have not brought their message yet: each may bring a big one. */
const ADMITTED = 64;
/** How often to look for messages that are over their time. */
const EXPIRY_MS = 1000;

/** All outboxes of a client. */
export class Producer {
  private _limits = DEFAULT_LIMITS;
  private _outboxes = new Map<string, Outbox>();
  /** Those with something to send, the one that waited longest first. */
  private _active = new Set<Outbox>();
  private _firstSeq = 1;
  private _waiting = 0;
  private _waitingBytes = 0;
  private _inflightBytes = 0;
  private _entrants = new Fifo<Ticket>();
  private _admitted = 0;
  private _expireAt = Infinity;

  constructor(
    private _settings: Settings,
    private _effects: Effect[],
    private _random: () => number,
  ) {}

  // Coming in

  /** Whether a message may come in at once; else wait with `enter`. */
  get hasRoom(): boolean {
    return !this._entrants.length && this._isOpen;
  }

  private get _isOpen(): boolean {
    const { waitingMessages, waitingBytes } = this._settings;
    return this._waiting + this._admitted < waitingMessages && this._waitingBytes < waitingBytes;
  }

  /** Queue up for room: the ticket resolves when it is this caller's turn to publish. */
  enter(ticket: Ticket): void {
    this._entrants.push(ticket);
    this._admit();
  }

  /** One who was admitted publishes now, or has gone away. */
  entered(): void {
    this._admitted -= 1;
  }

  /** One who queued up is gone, admitted or not. */
  leave(ticket: Ticket): void {
    const { length } = this._entrants;
    this._entrants.filter((one) => one !== ticket);
    if (this._entrants.length === length) this.entered();
    this._admit();
  }

  private _admit(): void {
    while (this._entrants.length && this._admitted < ADMITTED && this._isOpen) {
      this._admitted += 1;
      this._effects.push({ kind: "resolve", ticket: this._entrants.shift()! });
    }
  }

  /** Take a message in; throws `bad_request` or `too_large` and takes nothing then. */
  publish(queue: string, publication: Publication, now: number): void {
    let outbox = this._outboxes.get(queue);
    if (!outbox) checkTarget(queue);
    publication.check(this._limits);
    publication.calledAt = now;
    outbox ??= this._open(queue);
    outbox.waiting.push(publication);
    this._waiting += 1;
    this._waitingBytes += publication.cost;
    this._active.add(outbox);
    if (this._expireAt === Infinity) this._expireAt = now + EXPIRY_MS;
  }

  /** The caller no longer waits: a message that was never sent is forgotten. */
  withdraw(queue: string, publication: Publication): void {
    if (publication.seq || publication.isOver) return;
    this._outboxes.get(queue)?.waiting.filter((one) => one !== publication);
    this._unwait(publication);
    this._admit();
  }

  private _open(queue: string): Outbox {
    if (this._outboxes.size >= this._settings.producerQueues) {
      for (const [name, outbox] of [...this._outboxes]) {
        if (!outbox.isIdle) continue;
        this._outboxes.delete(name);
        this._active.delete(outbox);
        this._firstSeq = Math.max(this._firstSeq, outbox.nextSeq);
      }
    }
    const outbox = new Outbox(queue, this._firstSeq);
    this._outboxes.set(queue, outbox);
    return outbox;
  }

  private _unwait(publication: Publication): void {
    publication.isOver = true;
    this._waiting -= 1;
    this._waitingBytes -= publication.cost;
  }

  // Going out

  /** Frames for everything that may be sent now: with what was never sent, or without. */
  *outgoing(requests: Requests, now: number, hasFresh = true): Generator<PublishFrame> {
    const most = Math.max(1, this._limits.unanswered - this._settings.settleReserve);
    for (const outbox of [...this._active]) {
      while (outbox.blockedUntil <= now && requests.size < most) {
        const frame = this._frame(outbox, requests, hasFresh);
        if (!frame) break;
        yield frame;
      }
      this._active.delete(outbox);
      if (outbox.hasMore) this._active.add(outbox);
    }
    this._admit();
  }

  private _frame(outbox: Outbox, requests: Requests, hasFresh: boolean): PublishFrame | undefined {
    const { frame_bytes, inflight_bytes, batch } = this._limits;
    let room = frame_bytes - FRAME_OVERHEAD;
    if (this._inflightBytes) room = Math.min(room, inflight_bytes - this._inflightBytes);
    const [publications, fresh] = outbox.take(
      batch,
      room,
      hasFresh ? this._settings.producerWindow : 0,
    );
    if (!publications.length) return undefined;
    const cost = costOf(publications);
    this._waiting -= fresh;
    this._waitingBytes -= costOf(publications.slice(publications.length - fresh));
    this._inflightBytes += cost;
    const id = requests.add({ kind: "publish", outbox, publications, cost });
    return { op: "publish", id, to: outbox.queue, messages: publications };
  }

  // Answers

  /** A frame of ours was stored, all or in part. */
  answered(request: PublishRequest, answer: PublishedFrame, now: number): void {
    const { outbox, publications, cost } = request;
    if (answer.ids.length !== publications.length) {
      const fault = internal(`${answer.ids.length} ids for ${publications.length} messages`);
      this.refused(request, fault, now);
      return;
    }
    this._inflightBytes -= cost;
    const duplicates = new Set(answer.duplicates);
    publications.forEach((publication, index) => {
      if (publication.isOver) return;
      const id = answer.ids[index] ?? null;
      if (id === null) {
        this._refused(outbox, [publication], failureOf(answer, index), now);
        return;
      }
      outbox.finish(publication);
      const { options, wasRepeated, ticket } = publication;
      const duplicate = duplicates.has(index) && options.dedup !== undefined && !wasRepeated;
      const value: Published = { id, duplicate, error: null };
      this._effects.push({ kind: "resolve", ticket, value });
    });
  }

  /** A whole frame of ours was refused. */
  refused({ outbox, publications, cost }: PublishRequest, error: PushlaneError, now: number): void {
    this._inflightBytes -= cost;
    this._refused(outbox, publications, error, now);
  }

  private _refused(
    outbox: Outbox,
    publications: Publication[],
    error: PushlaneError,
    now: number,
  ): void {
    const again: Publication[] = [];
    for (const publication of publications) {
      if (publication.isOver) continue;
      publication.patience ??= new Patience(this._settings, this._random);
      const at = publication.patience.retryAt(error, now);
      if (at === null) {
        outbox.finish(publication);
        this._effects.push({ kind: "reject", ticket: publication.ticket, error });
      } else {
        again.push(publication);
        outbox.blockedUntil = Math.max(outbox.blockedUntil, at);
      }
    }
    if (again.length) {
      outbox.repeat(again);
      this._active.add(outbox);
    }
  }

  // Connections

  /** Everything unanswered goes again, before everything else. */
  disconnected(): void {
    this._inflightBytes = 0;
    for (const outbox of this._outboxes.values()) {
      outbox.blockedUntil = 0;
      if (outbox.unanswered.size) {
        outbox.repeatAll();
        this._active.add(outbox);
      }
    }
  }

  /** Another transport is used from now on, where a repeat of ours would be stored again: of what
   * has no answer and no id of the caller's, nobody can say whether it happened. */
  moved(): void {
    for (const outbox of this._outboxes.values()) {
      for (const publication of outbox.unanswered.values()) {
        if (publication.options.dedup !== undefined) continue;
        outbox.finish(publication);
        this._fail(
          publication,
          new ConnectionLost("the connection was lost before the answer came"),
        );
      }
    }
  }

  /** Another server may have others: what waits must not spoil its neighbours' frames. */
  setLimits(limits: Limits): void {
    this._limits = limits;
    for (const { waiting } of this._outboxes.values()) {
      waiting.filter((publication) => {
        try {
          publication.check(limits);
          return true;
        } catch (fault) {
          this._unwait(publication);
          this._fail(publication, fault as PushlaneError);
          return false;
        }
      });
    }
  }

  private _fail({ ticket }: Publication, error: PushlaneError): void {
    this._effects.push({ kind: "reject", ticket, error });
  }

  // Time

  /** When a block ends or a message may be over its time. */
  wakeAt(): number {
    let at = this._expireAt;
    for (const { blockedUntil } of this._active) {
      if (blockedUntil && blockedUntil < at) at = blockedUntil;
    }
    return at;
  }

  /** End blocks, and fail what waited too long. */
  tick(now: number): void {
    for (const outbox of this._active) if (outbox.blockedUntil <= now) outbox.blockedUntil = 0;
    if (now < this._expireAt) return;
    this._expireAt = Infinity;
    for (const outbox of this._outboxes.values()) {
      this._expire(outbox, now - this._settings.publishMs);
      if (!outbox.isIdle) this._expireAt = now + EXPIRY_MS;
    }
    this._admit();
  }

  private _expire(outbox: Outbox, calledBefore: number): void {
    const within = `within ${this._settings.publishMs} ms`;
    for (const publication of outbox.unanswered.values()) {
      if (publication.calledAt > calledBefore) break;
      outbox.finish(publication);
      this._fail(publication, new ConnectionLost(`no answer ${within}`));
    }
    const { waiting } = outbox;
    while (waiting.first && waiting.first.calledAt <= calledBefore) {
      const publication = waiting.shift()!;
      this._unwait(publication);
      this._fail(publication, new PushlaneError("unavailable", `not sent ${within}`));
    }
  }

  // The end

  /** All that was sent is answered. */
  get isFree(): boolean {
    return [...this._outboxes.values()].every(({ unanswered }) => !unanswered.size);
  }

  /** Nothing of anybody is under way. */
  get isIdle(): boolean {
    if (this._entrants.length) return false;
    for (const outbox of this._outboxes.values()) if (!outbox.isIdle) return false;
    return true;
  }

  /** No connection will come any more. */
  failAll(error: PushlaneError): void {
    for (const { unanswered, waiting } of this._outboxes.values()) {
      for (const publication of [...unanswered.values(), ...waiting]) {
        publication.isOver = true;
        this._fail(publication, error);
      }
    }
    for (const ticket of this._entrants) this._effects.push({ kind: "reject", ticket, error });
    this._entrants.clear();
    this._outboxes.clear();
    this._active.clear();
    this._waiting = this._waitingBytes = this._inflightBytes = 0;
    this._expireAt = Infinity;
  }
}

const costOf = (publications: Publication[]): number =>
  publications.reduce((sum, { cost }) => sum + cost, 0);

function failureOf(answer: PublishedFrame, index: number): PushlaneError {
  const failure = answer.failed?.find((one) => one.index === index);
  return failure
    ? errorFor(failure.code, failure.message, failure.retry_ms)
    : internal("neither an id nor an error");
}
