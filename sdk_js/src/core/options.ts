/** Checks of what users give, before anything is sent. */

import { badRequest } from "../wire/errors.js";

/** Throws `bad_request` for an option nobody knows: most likely a slip of the pen. */
export function checkOptions(what: string, options: object, known: readonly string[]): void {
  if (typeof options !== "object" || options === null) {
    throw badRequest(`${what} is no object of options`);
  }
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) throw badRequest(`${what} has no option ${name}`);
  }
}

/** An integer within bounds, or undefined. */
export function checkRange(name: string, value: unknown, least: number, most: number): void {
  if (value === undefined) return;
  if (!(Number.isInteger(value) && (value as number) >= least && (value as number) <= most)) {
    throw badRequest(`${name} is ${String(value)}: ${least} to ${most}`);
  }
}
