/** A server's limits, as its welcome names them. */

import { LIMITS, type Limits } from "./tables.js";

const NAMES = Object.keys(LIMITS) as (keyof Limits)[];

export const DEFAULT_LIMITS = Object.fromEntries(
  NAMES.map((name) => [name, LIMITS[name][0]]),
) as Limits;

/** The limits of a welcome; a set that contradicts itself is taken for the defaults. */
export function limitsOf(wire: Record<string, unknown>): Limits {
  const limits = { ...DEFAULT_LIMITS };
  for (const name of NAMES) {
    const value = (wire[name] ?? limits[name]) as number;
    const [, least, most] = LIMITS[name];
    if (!Number.isInteger(value) || value < least || value > most) return DEFAULT_LIMITS;
    limits[name] = value;
  }
  const isSound =
    limits.lease_ms_min <= limits.lease_ms_max && limits.message_bytes * 2 <= limits.frame_bytes;
  return isSound ? limits : DEFAULT_LIMITS;
}
