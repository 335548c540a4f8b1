/**
 * Every bound of the client, with its default and its reason, in one place.
 *
 * The server's own limits (`welcome.limits`) come on top: whichever is lower counts. Durations are
 * milliseconds.
 */

import { badRequest } from "../wire/errors.js";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const MIB = 2 ** 20;

/** A server remembers this many sequence numbers of a producer: a repeat of an older one can't be
 * recognized. */
export const REMEMBERED = 1024;

export const DEFAULTS = {
  /** How long `connect` goes on trying before it fails: long enough for a server that starts. */
  connectMs: 10 * SECOND,
  /** One attempt, from the first packet to `welcome`; a silent proxy must not hold us longer. */
  dialMs: 10 * SECOND,
  /** Before the n-th attempt (from 0) it waits a random part of base · 2^n, at most the max. */
  backoffBaseMs: 100,
  backoffMaxMs: 10 * SECOND,
  /** One attempt at a WebSocket where polling is the alternative: proxies may swallow it. */
  upgradeMs: 3 * SECOND,
  /** Attempts in a row that were cut or stood still before it is polling. */
  upgradeTries: 3,
  /** A WebSocket that is cut before it is this old may be cut by a proxy: after `upgradeTries` in a
   * row it is polling. */
  cutMs: MINUTE,
  /** Between probes of a WebSocket while polling; backoff as above. */
  probeBaseMs: 10 * SECOND,
  probeMaxMs: 5 * MINUTE,
  /** When a connection that lived this long is lost, the backoff starts over. */
  stableMs: 5 * SECOND,

  /** How long a publish may wait for its answer, reconnects included. Then it fails. */
  publishMs: 2 * MINUTE,
  /** How long something that was throttled or unavailable is repeated before its error counts. */
  retryMs: 30 * SECOND,
  /** Between repeats where the server gives no retry_ms; backoff as above. */
  retryBaseMs: 100,
  retryMaxMs: 5 * SECOND,

  /** From the oldest unanswered message of a queue to the newest sent; at most REMEMBERED. */
  producerWindow: 1000,
  /** Messages published and not yet sent; past it `publish` waits before it takes one in. */
  waitingMessages: 10_000,
  waitingBytes: 64 * MIB,
  /** Queues whose sequence is remembered; past it idle ones start over, at a higher number. */
  producerQueues: 10_000,
  /** Of the server's `unanswered`, kept free from publishes so that acks always get through. */
  settleReserve: 64,

  /** Messages of an `ack: "none"` subscription that wait for their taker; past it the newest are
   * dropped and counted. With explicit acks, credit is the bound. */
  buffered: 10_000,
  /** How long a lease is extended on its own: a handler that hangs must lose its message. */
  extendForMs: 60 * MINUTE,
  /** How long `close` waits for handlers, answers and acks. */
  closeMs: 30 * SECOND,
  /** How long `close` waits for a server that is not there, when publishes or acks have no answer
   * yet: long enough for one that restarts. */
  awayMs: 5 * SECOND,
  /** How long the other side may take to answer a close, and the goodbye of subscriptions before
   * it, until the socket is forgotten. */
  hangupMs: 2 * SECOND,

  /** One HTTP request, from connecting to the last byte of its answer. */
  httpMs: 30 * SECOND,
  /** How long a receive of a pipe waits for frames: many proxies cut what is silent for 30 s. */
  pollWaitMs: 20 * SECOND,
};

/** What a client may do at most, and how long it may take. */
export type Settings = Readonly<typeof DEFAULTS>;

/** Throws `bad_request` for an option that nobody knows: most likely a slip of the pen. */
export function refuse(options: object, known: object = {}): void {
  for (const name in options) {
    if (!(name in known)) throw badRequest(`no option ${name}${hint(name, Object.keys(known))}`);
  }
}

/** What was meant: the name of which most pairs of letters are there. */
function hint(name: string, known: string[]): string {
  const near = (one: string) =>
    [...one.slice(1)].filter((letter, at) => name.includes(one[at] + letter)).length / one.length;
  const [best] = known.sort((a, b) => near(b) - near(a));
  return best && near(best) ? `: did you mean ${best}?` : "";
}

/** The defaults with some changes; throws `bad_request`. */
export function settingsOf(changes: Partial<Settings> = {}): Settings {
  refuse(changes, DEFAULTS);
  for (const [name, value] of Object.entries(changes)) {
    if (!(value >= 1)) throw badRequest(`${name} is ${value}`);
  }
  return { ...DEFAULTS, ...changes };
}
