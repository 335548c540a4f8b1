/**
 * Which transport a client has: a WebSocket or, where that can't be had, a pipe over HTTP.
 *
 * "auto" tries a WebSocket first. A refusal in place of the upgrade means that something between us
 * and the server doesn't let it through: then it is polling. So it is after a few attempts in a row
 * that failed in the server or a proxy, were cut, or stood still before the welcome; and after a few
 * connections in a row that were cut while they were young. Bad credentials and a server that is
 * busy or not there say nothing about WebSockets.
 *
 * While it polls, a WebSocket is probed from time to time, up to its welcome. When that works, the
 * client changes back. Either way the session goes on: it is resumed over the other transport.
 */

import type { Line } from "./line.js";
import { backoffMs } from "./retry.js";

export type Transport = "ws" | "poll";
export type Wish = "auto" | Transport;

/** In place of a status: the connection ended, or what came made no sense. */
export const NO_ANSWER = 0;
const NOT_ABOUT_US = [401, 403, 429, 503];
const SERVER_FAULT = 500;

/** What a client was told to use, and what it uses. */
export function makeChoice({ settings, random }: Line, wish: Wish) {
  const { upgradeTries, cutMs, probeBaseMs, probeMaxMs } = settings;
  let isAuto = wish === "auto";
  let triesLeft = upgradeTries;
  let hasWorked = false;
  let cuts = 0;
  let probes = 0;

  const choice = {
    isPolling: wish === "poll",
    /** Whether a failed handshake can't change it any more, for as long as the connection lives. */
    isMade: !isAuto,
    /** When to probe a WebSocket. */
    probeAt: Infinity,

    /** A handshake failed with this status; whether it is polling from now on. */
    refused(status: number | undefined): boolean {
      if (status === undefined || choice.isMade || NOT_ABOUT_US.includes(status)) return false;
      triesLeft -= 1;
      const isSure = !hasWorked && status > NO_ANSWER && status < SERVER_FAULT;
      if (isSure || triesLeft <= 0) choice.isPolling = choice.isMade = true;
      return choice.isMade;
    },

    /** Polling is refused for good: where WebSockets worked it is one again, for life. */
    repents(): boolean {
      const isSorry = choice.isPolling && hasWorked;
      if (isSorry) choice.isPolling = isAuto = false;
      return isSorry;
    },

    /** It works, for now. */
    welcomed(now: number): void {
      choice.isMade = true;
      triesLeft = upgradeTries;
      hasWorked ||= !choice.isPolling;
      choice.probeLater(now);
    },

    /** There is no connection: one that was cut when it was this old, or (undefined) none. */
    lost(ageMs?: number): void {
      if (ageMs! >= cutMs) probes = 0;
      cuts = ageMs! < cutMs && !choice.isPolling ? cuts + 1 : 0;
      if (isAuto && cuts >= upgradeTries) choice.isPolling = true;
      choice.isMade = !isAuto || choice.isPolling;
      choice.probeAt = Infinity;
    },

    /** A probe may be worth it later. */
    probeLater(now: number): void {
      if (isAuto && choice.isPolling) {
        choice.probeAt = now + backoffMs(probeBaseMs, probeMaxMs, probes++, random());
      }
    },

    /** A probe was good: a WebSocket, unless it fails after all. */
    change(): void {
      choice.isPolling = false;
      choice.lost();
      triesLeft = 1;
    },
  };
  return choice;
}
