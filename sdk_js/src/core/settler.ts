/**
 * Telling the server what became of messages: start, ack, nack, extend.
 *
 * They are gathered by kind and sent as runs of receipts: a turn's acks of a subscription leave in
 * one frame, and since most messages are settled in the order of their delivery it names most of
 * them as one run, `P.N-M`. Acks and nacks are repeated until they are answered or the session is
 * gone; then nobody can say whether they counted, and whoever waits gets ConnectionLost.
 */

import { ConnectionLost, leaseLost, PushlaneError } from "../wire/errors.js";
import type { Done } from "../wire/frames.js";
import { expand } from "../wire/receipts.js";
import { cut } from "../wire/text.js";
import type { Clocks } from "./clocks.js";
import { type Lease, Phase, runs } from "./lease.js";
import type { Line, Question, Ticket } from "./line.js";
import type { Subscription } from "./subscription.js";

/** More than a receipt takes in a frame. */
const RECEIPT_BYTES = 160;

/** What settles of one frame have in common; the fields are those of the frame. */
export interface Kind {
  readonly op: "ack" | "nack" | "extend";
  readonly delay_ms?: number | undefined;
  readonly error?: string | undefined;
  readonly dead?: true;
  readonly lease_ms?: number;
}

export const ACK: Kind = { op: "ack" };
/** For what was never started: it goes back at once, and no attempt is counted. */
export const GIVE_BACK: Kind = { op: "nack", delay_ms: 0 };

/** What is told of a failure: the error's name and message, or the text that was given. */
export const summary = (error: unknown, { limits }: Line): string | undefined =>
  error === undefined || error === null ? undefined : cut(String(error), limits.error_bytes);

/**
 * Why a settle failed whose lease is lost, or its session gone. An earlier try may have counted
 * without our hearing of it: a server that took over since knows nothing of it.
 */
const lostError = ({ isUnknown }: Lease): PushlaneError =>
  isUnknown ? new ConnectionLost("no answer") : leaseLost();

/** A lease, and who waits for the answer, if anybody does. */
type Entry = [lease: Lease, ticket: Ticket | undefined];

/** Settles of one kind that wait to be sent. */
export interface Group {
  kind: Kind;
  entries: Entry[];
}

export type Settler = ReturnType<typeof makeSettler>;

/** What the server is to be told of leases, and its answers. `retries` says whether something is to
 * be sent again, `onChange` hears when a subscription may be done. */
export function makeSettler(
  line: Line,
  { turn, wind, lookBy }: Clocks,
  retries: (source: Subscription, error: PushlaneError, now: number) => boolean,
  onChange: (source: Subscription) => void,
) {
  /** Those with something to tell the server. */
  const dirty = new Set<Subscription>();
  /** Acks and nacks without an answer yet. */
  let open = 0;

  /** Ack, nack or extend a message that was taken. */
  function settle(lease: Lease, kind: Kind, ticket?: Ticket): void {
    if (lease.phase === Phase.Started) add(lease, kind, ticket);
    else if (lease.lost) ticket?.reject(leaseLost());
    else ticket?.reject(new PushlaneError("conflict", "no lease"));
  }

  /** The same, whatever its phase. */
  function add(lease: Lease, kind: Kind, ticket?: Ticket): void {
    if (kind.op !== "extend") {
      turn(lease, Phase.Settling);
      open += 1;
    }
    gather(lease.source, kind, [[lease, ticket]]);
  }

  function gather(source: Subscription, kind: Kind, entries: Entry[], isFirst = false): void {
    const key = kind === ACK ? "" : JSON.stringify(kind);
    const group = source.settles.get(key);
    if (!group) source.settles.set(key, { kind, entries });
    else if (isFirst) group.entries = [...entries, ...group.entries];
    else group.entries.push(...entries);
    dirty.add(source);
  }

  // Frames to send

  /** What was taken and settled since the last time, as far as the server's window allows. */
  function flush(source: Subscription, sub: number, now: number): void {
    const { settle, frame_bytes, unanswered } = line.limits;
    const most = Math.min(settle, Math.ceil(frame_bytes / RECEIPT_BYTES));
    const { starts, settles } = source;
    source.starts = [];
    source.settles = new Map();
    const taken = starts.filter(({ phase }) => phase !== Phase.Over);
    for (const part of parts(taken, most)) line.say({ op: "start", sub, receipts: runs(part) });
    for (const { kind, entries } of settles.values()) {
      for (const part of parts(entries, most)) {
        if (line.asking() < unanswered) ask(source, sub, kind, part, now);
        else gather(source, kind, part);
      }
    }
  }

  function ask(
    source: Subscription,
    sub: number,
    kind: Kind,
    entries: Entry[],
    sentAt: number,
  ): void {
    const receipts = runs(entries.map(([lease]) => lease));
    const again = () => repeat(source, kind, entries);
    line.ask({ ...kind, sub, receipts } as Question, {
      onDone(answer) {
        source.patience = undefined;
        done(kind, entries, answer as Done, sentAt);
        onChange(source);
      },
      onRefused(error, now) {
        if (retries(source, error, now)) {
          again();
        } else {
          refused(kind, entries, error, now);
          onChange(source);
        }
      },
      onGone: again,
    });
  }

  // Answers

  /** What the answer doesn't list succeeded. */
  function done(kind: Kind, entries: Entry[], { lease_lost }: Done, sentAt: number): void {
    const isExtend = kind.op === "extend";
    const lost = expand(lease_lost);
    for (const [lease, ticket] of entries) {
      if (!isExtend) open -= 1;
      if (lost.has(lease.receipt)) {
        lose(lease);
        ticket?.reject(lostError(lease));
        continue;
      }
      if (!isExtend) finish(lease);
      else if (lease.phase === Phase.Started) wind(lease, sentAt, kind.lease_ms!);
      ticket?.resolve();
    }
  }

  /** It stays refused: the lease is ours as before. */
  function refused(kind: Kind, entries: Entry[], error: PushlaneError, now: number): void {
    for (const [lease, ticket] of entries) {
      if (kind.op === "extend") {
        lookBy((lease.extendAt = now + lease.spanMs / 8));
      } else {
        open -= 1;
        // The answer to another settle may have said meanwhile that it is lost. And what nobody had
        // taken nobody wants: the server's clock ends it.
        if (lease.phase === Phase.Settling) {
          if (lease.deadline) turn(lease, Phase.Started);
          else lose(lease);
        }
      }
      ticket?.reject(error);
    }
  }

  /** Send it again, before what came later. Its outcome is unknown until then. */
  function repeat(source: Subscription, kind: Kind, entries: Entry[]): void {
    // Nobody waits for the client's own extensions: they come again when due.
    const left = kind.op === "extend" ? entries.filter(([, ticket]) => ticket) : entries;
    for (const [lease] of left) lease.isUnknown ||= kind.op !== "extend";
    if (left.length) gather(source, kind, left, true);
  }

  // Losing

  function finish(lease: Lease): void {
    turn(lease, Phase.Over);
    lease.source.release(lease);
  }

  /** A lease is over without our settling it. */
  function lose(lease: Lease): void {
    const wasStarted = lease.phase === Phase.Started;
    lease.lost = true;
    finish(lease);
    if (wasStarted) lease.owner?.cancel();
  }

  /** The session is gone, and with it all that the subscription held. */
  function loseAll(source: Subscription, error?: PushlaneError): void {
    for (const { kind, entries } of source.settles.values()) {
      for (const [lease, ticket] of entries) {
        if (kind.op !== "extend") open -= 1;
        ticket?.reject(error ?? lostError(lease));
      }
    }
    source.settles = new Map();
    source.starts = [];
    source.held().forEach(lose);
  }

  return { dirty, settle, add, flush, lose, loseAll, isIdle: () => !open };
}

function parts<T>(items: T[], most: number): T[][] {
  const found: T[][] = [];
  for (let at = 0; at < items.length; at += most) found.push(items.slice(at, at + most));
  return found;
}
