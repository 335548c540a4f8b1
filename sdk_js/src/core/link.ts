/**
 * The connection as a plan: when to dial, how long to wait, when to take it for dead.
 *
 * Each attempt has a number of its own.
 */

import type { Line } from "./line.js";
import { backoffMs } from "./retry.js";

/** Times heartbeat_ms without a byte from the server: the connection is taken for dead. */
const SILENCE = 2.5;

export const enum Stage {
  /** Until the time of the next attempt. */
  Waiting,
  /** Until the socket is open. */
  Dialing,
  /** Until the server's welcome. */
  Greeting,
  Open,
  /** For ever. */
  Closed,
}

/** Where we stand with the server, and until when. */
export function makeLink({ settings, random }: Line) {
  /** Failed attempts in a row. */
  let attempt = 0;
  let silenceMs = 0;

  const link = {
    stage: Stage.Waiting,
    number: 0,
    /** When the stage must end: the time to dial, or when to give the attempt up. */
    dueAt: Infinity,
    /** Only before the first welcome: when `connect` fails. */
    giveUpAt: Infinity,
    /** What a goaway said, for the next connection only. */
    reconnectMs: undefined as number | undefined,
    /** Whether the server said when to come back. */
    isTold: false,
    openedAt: 0,

    /** Begin an attempt. */
    begin(now: number, isUpgradeUnsure: boolean): number {
      const { dialMs, upgradeMs } = settings;
      link.stage = Stage.Dialing;
      link.dueAt = now + (isUpgradeUnsure ? Math.min(dialMs, upgradeMs) : dialMs);
      link.reconnectMs = undefined;
      return ++link.number;
    },

    /** The server said welcome. */
    opened(now: number, heartbeatMs: number): void {
      link.stage = Stage.Open;
      link.openedAt = now;
      link.giveUpAt = Infinity;
      silenceMs = heartbeatMs * SILENCE || Infinity;
      link.heard(now);
    },

    /** Something came from the server. */
    heard(now: number): void {
      if (link.stage === Stage.Open) link.dueAt = now + silenceMs;
    },

    /** The connection or the attempt is lost: plan the next. */
    wait(now: number, retryMs: number | undefined): void {
      const { stableMs, backoffBaseMs, backoffMaxMs } = settings;
      if (link.stage === Stage.Open && now - link.openedAt >= stableMs) attempt = 0;
      const told = retryMs ?? link.reconnectMs;
      link.dueAt = now + (told ?? backoffMs(backoffBaseMs, backoffMaxMs, attempt, random()));
      link.isTold = told !== undefined;
      link.stage = Stage.Waiting;
      attempt += 1;
    },
  };
  return link;
}
