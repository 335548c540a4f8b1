/** A server's limits, as its welcome names them. */

import { LIMITS } from "./tables.js";

export type Limits = Readonly<typeof LIMITS>;

/** The limits of a welcome; what it doesn't name has its default. */
export const limitsOf = (named?: Record<string, number>): Limits => ({ ...LIMITS, ...named });
