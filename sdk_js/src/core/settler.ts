/**
 * Telling the server what became of messages: start, ack, nack, extend.
 *
 * Acks and nacks are repeated until they are answered or the session is gone; then nobody can say
 * whether they counted, and whoever waits gets ConnectionLost.
 */

import { ConnectionLost, leaseLost, PushlaneError } from "../wire/errors.js";
import type { Done, Start } from "../wire/frames.js";
import { DEFAULT_LIMITS } from "../wire/limits.js";
import { expand } from "../wire/receipts.js";
import type { Clocks } from "./clocks.js";
import type { Effect, Ticket } from "./effects.js";
import type { Lease } from "./lease.js";
import type { Requests, SettleRequest } from "./requests.js";
import {
  frameOf,
  type Entry,
  type Kind,
  kindKey,
  runs,
  type Settle,
  type SettleFrame,
} from "./settle.js";
import type { Subscription } from "./subscription.js";

/** More than a receipt takes in a frame. */
const RECEIPT_BYTES = 160;
const LOST = "the lease is lost: the message will be delivered again";

/** What the server is to be told of leases, and its answers. */
export class Settler {
  limits = DEFAULT_LIMITS;
  /** Those with something to tell the server. */
  readonly dirty = new Set<Subscription>();
  /** Acks and nacks without an answer yet. */
  pending = 0;

  constructor(
    private _effects: Effect[],
    private _clocks: Clocks,
  ) {}

  /** Ack, nack or extend a message that was taken. */
  settle(lease: Lease, kind: Kind, ticket: Ticket | null): void {
    if (lease.lost) {
      this.reject(ticket, leaseLost(LOST));
    } else if (lease.phase === "started") {
      this.add(lease, kind, ticket);
    } else {
      const what = lease.prefix ? "was settled before" : "has no lease";
      this.reject(ticket, new PushlaneError("conflict", `the message ${what}`));
    }
  }

  /** The same, whatever its phase. */
  add(lease: Lease, kind: Kind, ticket: Ticket | null): void {
    if (kind.op !== "extend") {
      lease.phase = "settling";
      this._clocks.stop(lease);
      this.pending += 1;
    }
    const { subscription } = lease;
    const group = subscription.settles.get(kindKey(kind));
    if (group) group.entries.push([lease, ticket]);
    else this._gather(subscription, kind, [[lease, ticket]]);
  }

  private _gather(subscription: Subscription, kind: Kind, entries: Entry[], isFirst = false): void {
    const key = kindKey(kind);
    const group = subscription.settles.get(key);
    if (!group) subscription.settles.set(key, { kind, entries });
    else if (isFirst) group.entries = [...entries, ...group.entries];
    else for (const entry of entries) group.entries.push(entry);
    this.dirty.add(subscription);
  }

  // Frames to send

  /** What was taken since the last flush. */
  *starts(subscription: Subscription, sub: number): Generator<Start> {
    const taken = subscription.starts.filter((lease) => lease.phase !== "over");
    subscription.starts = [];
    for (const part of parts(taken, this._most)) {
      yield { op: "start", sub, receipts: runs(part) };
    }
  }

  /** What was settled since the last flush, as far as the server's window allows. */
  *settles(
    subscription: Subscription,
    sub: number,
    requests: Requests,
    now: number,
  ): Generator<SettleFrame> {
    const groups = [...subscription.settles.values()];
    subscription.settles = new Map();
    for (const { kind, entries } of groups) {
      for (const part of parts(entries, this._most)) {
        if (requests.size >= this.limits.unanswered) {
          this._gather(subscription, kind, part);
          continue;
        }
        const settle: Settle = { subscription, kind, entries: part };
        yield frameOf(sub, settle, requests.add({ kind: "settle", settle, sentAt: now }));
      }
    }
  }

  private get _most(): number {
    const { settle, frame_bytes } = this.limits;
    return Math.max(1, Math.min(settle, Math.floor(frame_bytes / RECEIPT_BYTES)));
  }

  // Answers

  /** What the answer doesn't list succeeded. */
  done({ settle, sentAt }: SettleRequest, frame: Done): void {
    const { kind, entries } = settle;
    const isExtend = kind.op === "extend";
    const lost = new Set(expand(frame.lease_lost ?? []));
    for (const [lease, ticket] of entries) {
      if (!isExtend) this.pending -= 1;
      if (lost.has(lease.receipt)) {
        this.lose(lease);
        this.reject(ticket, leaseLost(LOST));
        continue;
      }
      if (!isExtend) {
        lease.phase = "over";
        lease.subscription.held.delete(lease);
      } else if (lease.phase === "started") {
        this._clocks.wind(lease, sentAt, kind.lease_ms);
      }
      if (ticket) this._effects.push({ kind: "resolve", ticket });
    }
  }

  /** It stays refused: the lease is ours as before. */
  refused({ kind, entries }: Settle, error: PushlaneError, now: number): void {
    for (const [lease, ticket] of entries) {
      if (kind.op === "extend") {
        lease.extendAt = now + (kind.lease_ms ?? 0) / 8;
        this._clocks.lookBy(lease.extendAt);
      } else {
        this.pending -= 1;
        this._takeBack(lease);
      }
      this.reject(ticket, error);
    }
  }

  private _takeBack(lease: Lease): void {
    // The answer to another settle may have said meanwhile that it is lost.
    if (lease.phase !== "settling") return;
    if (lease.deadline) {
      lease.phase = "started";
      this._clocks.resume(lease);
    } else {
      this.lose(lease); // nobody had taken it, so nobody wants it: the server's clock ends it
    }
  }

  /** Send it again, before what came later. Its outcome is unknown until then. */
  again({ subscription, kind, entries }: Settle): void {
    let left = entries;
    if (kind.op === "extend") {
      // Nobody waits for the client's own: they come again when due.
      left = entries.filter(([, ticket]) => ticket);
    } else {
      for (const [lease] of entries) lease.isUnknown = true;
    }
    if (left.length) this._gather(subscription, kind, left, true);
  }

  // Losing

  /** The server says that these are no longer ours. */
  loseReceipts(subscription: Subscription, receipts: string[]): void {
    for (const receipt of expand(receipts)) {
      const lease = subscription.held.get(receipt);
      // Of what we are settling the answer decides: it may have been done.
      if (lease && lease.phase !== "settling") this.lose(lease);
    }
  }

  /** A lease is over without our settling it. */
  lose(lease: Lease): void {
    const wasStarted = lease.phase === "started";
    lease.phase = "over";
    lease.lost = true;
    this._clocks.stop(lease);
    lease.subscription.held.delete(lease);
    if (wasStarted) this._effects.push({ kind: "lost", lease });
  }

  /** The session is gone, and with it all that the subscription held. */
  loseAll(subscription: Subscription, errorOf: (lease: Lease) => PushlaneError): void {
    for (const { kind, entries } of subscription.settles.values()) {
      for (const [lease, ticket] of entries) {
        if (kind.op !== "extend") this.pending -= 1;
        this.reject(ticket, errorOf(lease));
      }
    }
    subscription.settles = new Map();
    subscription.starts = [];
    for (const lease of subscription.held.values()) this.lose(lease);
    subscription.held.clear();
  }

  /** Tell whoever waits. */
  reject(ticket: Ticket | null, error: PushlaneError): void {
    if (ticket) this._effects.push({ kind: "reject", ticket, error });
  }
}

/** Why a settle failed whose session is gone. */
export const gone = (lease: Lease): PushlaneError =>
  lease.isUnknown
    ? new ConnectionLost("the connection was lost before the answer came")
    : leaseLost(LOST);

function* parts<T>(items: T[], most: number): Generator<T[]> {
  for (let at = 0; at < items.length; at += most) {
    yield items.length <= most ? items : items.slice(at, at + most);
  }
}
