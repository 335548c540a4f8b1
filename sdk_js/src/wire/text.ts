/** Text and bytes: sizes in UTF-8, base64, and JSON that every consumer can read. */

import { badRequest } from "./errors.js";
import { LIMITS } from "./tables.js";

const DEPTH = LIMITS.body_depth[0];
const encoder = new TextEncoder();

/** How many bytes a text has in UTF-8. */
export const byteLength = (text: string): number =>
  /[\x80-\uffff]/.test(text) ? encoder.encode(text).length : text.length;

/** The longest beginning of a text that has at most so many bytes. */
export function cut(text: string, most: number): string {
  const { read } = encoder.encodeInto(text, new Uint8Array(most));
  return text.slice(0, read);
}

export function toBase64(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) {
    text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  }
  return btoa(text);
}

export const fromBase64 = (text: string): Uint8Array =>
  Uint8Array.from(atob(text), (character) => character.charCodeAt(0));

/** A value as JSON text; throws `bad_request` for what JSON can't hold. */
export function toJson(value: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (fault) {
    throw badRequest(`body can't be written as JSON: ${(fault as Error).message}`, {
      cause: fault,
    });
  }
  if (text === undefined)
    throw badRequest(`body can't be written as JSON: it is a ${typeof value}`);
  if (text.length > 2 * DEPTH) checkDepth(text);
  return text;
}

/** Half a surrogate pair has no UTF-8 form: JSON.stringify escapes it, and servers refuse that. */
export function checkPairs(text: string): void {
  if (text.includes("\\ud") && /(?:^|[^\\])(?:\\\\)*\\ud[89a-f]/.test(text)) {
    throw badRequest("half a surrogate pair can't be written as JSON in UTF-8");
  }
}

/** Throws when well-formed JSON is nested deeper than allowed. */
function checkDepth(text: string): void {
  let depth = 0;
  for (const [mark] of text.matchAll(/"(?:\\.|[^"\\])*"|[[\]{}]/g)) {
    if (mark === "[" || mark === "{") depth += 1;
    else if (mark === "]" || mark === "}") depth -= 1;
    if (depth > DEPTH) throw badRequest(`body is nested deeper than ${DEPTH}`);
  }
}
