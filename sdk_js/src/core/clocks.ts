/**
 * The clocks of started leases: when to extend, and when to give up.
 *
 * Leases are settled far more often than they run out, so no timer is kept for each: there is one
 * time at which to look at all that run, and looking finds the next. Extensions that are due soon
 * go along with those that are due now.
 */

import type { Lease } from "./lease.js";
import { EXTEND_AT } from "./settings.js";
import type { Subscription } from "./subscription.js";

/** The part of a lease by which an extension may come early, to share a frame with others. */
const TOGETHER = 0.1;
const NEVER = Infinity;

/** The started leases of a client. */
export class Clocks {
  private _count = 0;
  private _lookAt = NEVER;

  constructor(
    private _extendForMs: number,
    private _subscriptions: Iterable<Subscription>,
  ) {}

  /** Those that somebody works on. */
  running(): Lease[] {
    const all = [...this._subscriptions].flatMap(({ held }) => held.values());
    return all.filter(({ isRunning }) => isRunning);
  }

  private _run(lease: Lease, isRunning: boolean): void {
    if (lease.isRunning === isRunning) return;
    lease.isRunning = isRunning;
    this._count += isRunning ? 1 : -1;
  }

  /** Somebody begins to work on it. */
  start(lease: Lease, now: number): void {
    this._run(lease, true);
    this.wind(lease, now, lease.message.lease_ms);
  }

  /** The lease runs anew since then: when we sent the word for it, which is no later than when the
   * server heard it. */
  wind(lease: Lease, since: number, leaseMs: number | null | undefined): void {
    lease.deadline = since + (leaseMs ?? NEVER);
    lease.extendAt = since + (leaseMs ?? NEVER) * EXTEND_AT;
    this.lookBy(lease.extendAt);
  }

  stop(lease: Lease): void {
    this._run(lease, false);
  }

  /** Its settle was refused: it runs on as it did. */
  resume(lease: Lease): void {
    this._run(lease, true);
    this.lookBy(lease.deadline);
  }

  /** Extend it when due, for a bounded time. */
  keep(lease: Lease, now: number): void {
    lease.keptUntil = now + this._extendForMs;
    this.lookBy(lease.extendAt);
  }

  /** Look at all of them no later than then. */
  lookBy(at: number): void {
    if (at < this._lookAt) this._lookAt = at;
  }

  /** There is a connection again: what was not extended for want of one is due now. */
  forgive(now: number): void {
    for (const lease of this.running()) {
      const part = (lease.message.lease_ms ?? 0) * (1 - EXTEND_AT);
      lease.extendAt = Math.min(lease.extendAt, lease.deadline - part);
    }
    this.lookBy(now);
  }

  /** There is a server again, and it may have forgotten them: ask by extending. */
  doubt(now: number): void {
    for (const lease of this.running()) lease.extendAt = now;
    this.lookBy(now);
  }

  /** When to look; never while nothing runs. */
  wakeAt(): number {
    return this._count ? this._lookAt : NEVER;
  }

  /** Extend what is kept and due, lose what ran out. */
  look(
    now: number,
    canExtend: boolean,
    extend: (lease: Lease) => void,
    lose: (lease: Lease) => void,
  ): void {
    if (now < this._lookAt) return;
    this._lookAt = NEVER;
    for (const lease of this.running()) {
      if (now >= lease.deadline) {
        lose(lease);
        continue;
      }
      const isKept = lease.keptUntil !== null && now < lease.keptUntil;
      const early = (lease.message.lease_ms ?? 0) * TOGETHER;
      if (isKept && canExtend && lease.extendAt <= now + early) {
        lease.extendAt = lease.deadline; // until the answer says otherwise
        extend(lease);
      }
      this.lookBy(isKept && lease.extendAt > now ? lease.extendAt : lease.deadline);
    }
  }

  /** Whether somebody works on a message that is kept for them. */
  get isKept(): boolean {
    return this._count > 0 && this.running().some(({ keptUntil }) => keptUntil !== null);
  }
}
