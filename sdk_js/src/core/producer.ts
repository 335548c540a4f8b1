/**
 * Publishing: from a caller's message to its id, over as many connections as it takes.
 *
 * Messages gather in the outbox of their queue. A flush puts them into frames: as many as the
 * frame, the server's window and the queue's span of sequence numbers allow. Answers resolve them
 * one by one; what is throttled or unavailable goes again with the same number, within a bounded
 * time; when the connection is lost everything unanswered goes again on the next, and the server
 * tells the repeats from the first by (producer, seq).
 *
 * Callers who don't know of each other share a frame, and a mistake in one message refuses all of
 * it. Nothing is stored then, so each goes again alone, and only whose fault it was hears of it.
 */

import { ConnectionLost, PushlaneError } from "../wire/errors.js";
import type { Failed, Published as PublishedFrame } from "../wire/frames.js";
import type { Line, Ticket } from "./line.js";
import { Outbox } from "./outbox.js";
import type { Publication } from "./publication.js";
import { Patience } from "./retry.js";
import { REMEMBERED } from "./settings.js";

/** More than the op, the id and the name of a frame can take. */
const FRAME_OVERHEAD = 1024;
/** How often to look for messages that are over their time. */
const EXPIRY_MS = 1000;
/** One message may be to blame for the whole frame, and nothing of it was stored. */
const ONE_FOR_ALL = ["bad_request", "too_large", "forbidden"];

/** Somebody with a message that there is no room for yet. */
export interface Entrant {
  reject: Ticket["reject"];
  /** There is room: publish it. */
  enter(): void;
}

export type Producer = ReturnType<typeof makeProducer>;

/** All outboxes of a client. */
export function makeProducer(line: Line) {
  const outboxes = new Map<string, Outbox>();
  /** Those with something to send, the one that waited longest first. */
  const active = new Set<Outbox>();
  const entrants = new Set<Entrant>();
  let firstSeq = 1;
  let waitingCount = 0;
  let waitingBytes = 0;
  let inflightBytes = 0;
  let expireAt = Infinity;

  // Coming in

  function hasRoom(): boolean {
    const { waitingMessages, waitingBytes: most } = line.settings;
    return waitingCount < waitingMessages && waitingBytes < most;
  }

  /** `enter` is called when it is this one's turn, now or later. */
  function admit(entrant: Entrant): void {
    if (hasRoom()) entrant.enter();
    else entrants.add(entrant);
  }

  function admitMore(): void {
    for (const entrant of entrants) {
      if (!hasRoom()) return;
      entrants.delete(entrant);
      entrant.enter();
    }
  }

  /** Take a message in. */
  function publish(queue: string, publication: Publication, now: number): void {
    const outbox = outboxes.get(queue) ?? open(queue);
    publication.calledAt = now;
    outbox.waiting.push(publication);
    count(publication, 1);
    active.add(outbox);
    if (expireAt === Infinity) expireAt = now + EXPIRY_MS;
  }

  /** The caller no longer waits: what was never sent is forgotten. */
  function withdraw(entrant: Entrant, queue: string, publication: Publication | undefined): void {
    entrants.delete(entrant);
    if (!publication || publication.seq || publication.isOver) return;
    const { waiting } = outboxes.get(queue)!;
    waiting.splice(waiting.indexOf(publication), 1);
    publication.isOver = true;
    count(publication, -1);
    admitMore();
  }

  function open(queue: string): Outbox {
    if (outboxes.size >= line.settings.producerQueues) {
      for (const [name, { isIdle, nextSeq }] of outboxes) {
        if (!isIdle) continue;
        outboxes.delete(name);
        firstSeq = Math.max(firstSeq, nextSeq);
      }
    }
    const outbox = new Outbox(queue, firstSeq);
    outboxes.set(queue, outbox);
    return outbox;
  }

  function count({ cost }: Publication, sign: number): void {
    waitingCount += sign;
    waitingBytes += sign * cost;
  }

  // Going out

  /** Send all that may be sent now. */
  function flush(now: number): void {
    const { limits, settings } = line;
    const most = Math.max(1, limits.unanswered - settings.settleReserve);
    for (const outbox of [...active]) {
      while (outbox.blockedUntil <= now && line.asking() < most && send(outbox));
      active.delete(outbox);
      if (outbox.waiting.length || outbox.repeats.length) active.add(outbox);
    }
    admitMore();
  }

  /** The next messages of a queue to send. */
  function take(outbox: Outbox): Publication[] {
    const { frame_bytes, inflight_bytes, batch } = line.limits;
    const { repeats, waiting, sent } = outbox;
    const most = frame_bytes - FRAME_OVERHEAD;
    let room = inflightBytes ? Math.min(most, inflight_bytes - inflightBytes) : most;
    const messages: Publication[] = [];
    const isOver = (next: Publication): boolean => {
      if (next.cost > most)
        fail(outbox, next, new PushlaneError("too_large", `over ${most} bytes`));
      return next.isOver;
    };
    const fits = (next: Publication): boolean => {
      const isAlone = next.isAlone || messages[0]?.isAlone;
      const isFit = next.cost <= room && messages.length < (isAlone ? 1 : batch);
      if (isFit) room -= messages.push(next) && next.cost;
      return isFit;
    };
    while (repeats.length && (isOver(repeats[0]!) || fits(repeats[0]!))) repeats.shift();
    if (repeats.length) return messages;
    while (outbox.oldest < outbox.nextSeq && !sent.find(outbox.oldest)) outbox.oldest += 1;
    const last = outbox.oldest + Math.min(line.settings.producerWindow, REMEMBERED);
    let taken = 0;
    for (const next of waiting) {
      if (!isOver(next)) {
        if (outbox.nextSeq >= last || !fits(next)) break;
        sent.put((next.seq = outbox.nextSeq++), next);
      }
      count(next, -1);
      taken += 1;
    }
    waiting.splice(0, taken);
    return messages;
  }

  /** A frame of what is next; whether there was something. */
  function send(outbox: Outbox): boolean {
    const messages = take(outbox);
    if (!messages.length) return false;
    const cost = messages.reduce((sum, publication) => sum + publication.cost, 0);
    inflightBytes += cost;
    line.ask(
      { op: "publish", to: outbox.queue },
      {
        onDone: (answer, now) => {
          inflightBytes -= cost;
          stored(outbox, messages, answer as PublishedFrame, now);
        },
        onRefused: (error, now) => {
          inflightBytes -= cost;
          refused(outbox, messages, error, now);
        },
      },
      messages.map(({ text, seq }) => `{${text}${seq}}`),
    );
    return true;
  }

  // Answers

  /** A frame of ours was stored, all or in part. */
  function stored(outbox: Outbox, messages: Publication[], answer: PublishedFrame, now: number) {
    const { ids, duplicates, failed } = answer;
    messages.forEach((publication, index) => {
      const id = ids?.[index];
      if (publication.isOver) return;
      const isRepeat = !!duplicates?.includes(index);
      if (id || isRepeat) {
        finish(outbox, publication);
        const { options, wasRepeated, ticket } = publication;
        const isOurs = options.dedup === undefined || wasRepeated;
        const duplicate = !id || (!isOurs && isRepeat);
        ticket.resolve({ id: id ?? null, duplicate, error: null });
      } else {
        const found: Partial<Failed> = failed?.find((one) => one.index === index) ?? {};
        const { code = "internal", message = "no id", retry_ms } = found;
        refused(outbox, [publication], new PushlaneError(code, message, retry_ms), now);
      }
    });
  }

  /** A frame of ours was refused, or a message of one. */
  function refused(outbox: Outbox, messages: Publication[], error: PushlaneError, now: number) {
    const isAlone = messages.length > 1 && ONE_FOR_ALL.includes(error.code);
    const again: Publication[] = [];
    for (const publication of messages) {
      if (publication.isOver) continue;
      const patience = (publication.patience ??= new Patience());
      const at = isAlone ? 0 : patience.retryAt(line, error, now);
      if (at === undefined) {
        fail(outbox, publication, error);
      } else {
        publication.isAlone ||= isAlone;
        outbox.blockedUntil = Math.max(outbox.blockedUntil, at);
        again.push(publication);
      }
    }
    repeat(outbox, again, !isAlone);
  }

  /** Send these again, each at its place; they may have been stored. */
  function repeat(outbox: Outbox, publications: Publication[], wasStored = true): void {
    for (const publication of publications) publication.wasRepeated ||= wasStored;
    outbox.repeats = [...outbox.repeats, ...publications].sort((a, b) => a.seq - b.seq);
    if (publications.length) active.add(outbox);
  }

  /** Its fate is known. */
  function finish({ sent }: Outbox, publication: Publication): void {
    publication.isOver = true;
    sent.drop(publication.seq);
  }

  function fail(outbox: Outbox, publication: Publication, error: PushlaneError): void {
    finish(outbox, publication);
    publication.ticket.reject(error);
  }

  // Connections

  /** Everything unanswered goes again, before everything else. */
  function disconnected(): void {
    inflightBytes = 0;
    for (const outbox of outboxes.values()) {
      outbox.blockedUntil = 0;
      outbox.repeats = [];
      repeat(outbox, outbox.sent.all());
    }
  }

  // Time

  /** When a block ends or a message may be over its time. */
  function wakeAt(): number {
    let at = expireAt;
    for (const { blockedUntil } of active) if (blockedUntil) at = Math.min(at, blockedUntil);
    return at;
  }

  /** End blocks, and fail what waited too long. */
  function tick(now: number): void {
    for (const outbox of active) if (outbox.blockedUntil <= now) outbox.blockedUntil = 0;
    if (now < expireAt) return;
    const { publishMs } = line.settings;
    expireAt = Infinity;
    for (const outbox of outboxes.values()) {
      expire(outbox, now - publishMs, `no answer within ${publishMs} ms`);
      if (!outbox.isIdle) expireAt = now + EXPIRY_MS;
    }
    admitMore();
  }

  function expire(outbox: Outbox, calledBefore: number, late: string): void {
    const { sent, waiting } = outbox;
    for (const publication of [...sent.all(), ...waiting]) {
      if (publication.calledAt > calledBefore) continue;
      if (publication.seq) {
        fail(outbox, publication, new ConnectionLost(late));
      } else {
        count(waiting.shift()!, -1);
        fail(outbox, publication, new PushlaneError("unavailable", late));
      }
    }
  }

  /** Nothing of anybody is under way. */
  function isIdle(): boolean {
    return !entrants.size && [...outboxes.values()].every(({ isIdle }) => isIdle);
  }

  /** No connection will come any more. */
  function end(error: PushlaneError): void {
    for (const outbox of outboxes.values()) {
      for (const publication of [...outbox.sent.all(), ...outbox.waiting]) {
        fail(outbox, publication, error);
      }
    }
    for (const { reject } of entrants) reject(error);
    outboxes.clear();
    active.clear();
  }

  return { admit, publish, withdraw, flush, disconnected, wakeAt, tick, isIdle, end };
}
