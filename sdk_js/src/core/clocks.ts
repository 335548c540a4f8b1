/**
 * The clocks of started leases: when to extend, and when to give up.
 *
 * Leases are settled far more often than they run out, so no timer is kept for each: there is one
 * time at which to look at all that run, and looking finds the next. Extensions that are due soon
 * go along with those that are due now.
 */

import { type Lease, Phase } from "./lease.js";
import type { Subscription } from "./subscription.js";

/** The part of a lease after which it is extended: half of it is left for a reconnect. */
const EXTEND_AT = 0.5;
/** The part of a lease by which an extension may come early, to share a frame with others. */
const TOGETHER = 0.1;

export type Clocks = ReturnType<typeof makeClocks>;

/** The started leases of a client. */
export function makeClocks(subscriptions: Set<Subscription>, extendForMs: number) {
  let running = 0;
  let lookAt = Infinity;

  /** Those that somebody works on. */
  const started = (): Lease[] =>
    [...subscriptions]
      .flatMap((subscription) => subscription.held())
      .filter(({ phase }) => phase === Phase.Started);

  /** Look at all of them no later than then. */
  function lookBy(at: number): void {
    if (at < lookAt) lookAt = at;
  }

  /** A lease runs while it is started. */
  function turn(lease: Lease, phase: Phase): void {
    running += +(phase === Phase.Started) - +(lease.phase === Phase.Started);
    lease.phase = phase;
    if (phase === Phase.Started) lookBy(lease.deadline);
  }

  /** The lease starts over from then: when we sent the word for it, which is no later than when the
   * server heard it. */
  function wind(lease: Lease, since: number, spanMs: number): void {
    lease.deadline = since + spanMs;
    lease.extendAt = since + spanMs * EXTEND_AT;
    lookBy(lease.extendAt);
  }

  /** Extend it when due, for a bounded time. */
  function keep(lease: Lease, now: number): void {
    lease.keptUntil = now + extendForMs;
    lookBy(lease.extendAt);
  }

  /** There is a connection again: what was not extended meanwhile is due now. */
  function forgive(now: number): void {
    for (const lease of started()) {
      const part = lease.spanMs * (1 - EXTEND_AT);
      lease.extendAt = Math.min(lease.extendAt, lease.deadline - part);
    }
    lookBy(now);
  }

  /** When to look; never while nothing runs. */
  const wakeAt = (): number => (running ? lookAt : Infinity);

  /** Extend what is kept and due, lose what ran out. */
  function look(
    now: number,
    canExtend: boolean,
    extend: (lease: Lease) => void,
    lose: (lease: Lease) => void,
  ): void {
    if (now < lookAt) return;
    lookAt = Infinity;
    for (const lease of started()) {
      if (now >= lease.deadline) {
        lose(lease);
        continue;
      }
      const isKept = now < lease.keptUntil;
      if (isKept && canExtend && lease.extendAt <= now + lease.spanMs * TOGETHER) {
        lease.extendAt = lease.deadline; // until the answer says otherwise
        extend(lease);
      }
      lookBy(isKept && lease.extendAt > now ? lease.extendAt : lease.deadline);
    }
  }

  /** Whether somebody works on a message that is kept for them. */
  const isAnyKept = (): boolean => started().some(({ keptUntil }) => keptUntil);

  return { started, lookBy, turn, wind, keep, forgive, wakeAt, look, isAnyKept };
}
