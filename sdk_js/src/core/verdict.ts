/** What becomes of a message after its handler: the settle to send, made from what users say. */

import { badRequest } from "../wire/errors.js";
import type { Limits } from "../wire/tables.js";
import { cut } from "../wire/text.js";
import { checkRange } from "./options.js";
import type { Kind } from "./settle.js";

/** It failed: deliver it again, after the queue's backoff or `delayMs`. */
export function nack(error: unknown, delayMs: number | undefined, limits: Limits): Kind {
  checkRange("delayMs", delayMs, 0, limits.delay_ms_max);
  return {
    op: "nack",
    ...(delayMs !== undefined && { delay_ms: delayMs }),
    ...summary(error, limits),
  };
}

/** It will never succeed: to the dead letters. */
export const reject = (error: unknown, limits: Limits): Kind => ({
  op: "nack",
  ...summary(error, limits),
  dead: true,
});

/** Work takes longer. */
export function extend(leaseMs: number, limits: Limits): Kind {
  if (leaseMs === undefined) throw badRequest("leaseMs is needed");
  checkRange("leaseMs", leaseMs, limits.lease_ms_min, limits.lease_ms_max);
  return { op: "extend", lease_ms: leaseMs };
}

/** A text of at most error_bytes: the error's name and message, or what was given. */
function summary(error: unknown, limits: Limits): { error?: string } {
  return error === undefined || error === null
    ? {}
    : { error: cut(String(error).toWellFormed?.() ?? String(error), limits.error_bytes) };
}
