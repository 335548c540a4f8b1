/** Text and bytes: sizes in UTF-8, base64, and JSON. */

import { badRequest } from "./errors.js";

const encoder = new TextEncoder();

/** How many bytes a text has in UTF-8. */
export const byteLength = (text: string): number => encoder.encode(text).length;

/** The longest beginning of a text that has at most `most` bytes, without halves of pairs. */
export function cut(text: string, most: number): string {
  const bytes = new Uint8Array(most);
  return new TextDecoder().decode(bytes.subarray(0, encoder.encodeInto(text, bytes).written));
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
  let why: unknown = typeof value;
  try {
    text = JSON.stringify(value);
  } catch (fault) {
    why = fault;
  }
  if (text === undefined) throw badRequest(`no JSON: ${String(why)}`);
  return text;
}

/** What a JSON text says; undefined for what is none. */
export function fromJson(text: unknown): unknown {
  try {
    return JSON.parse(text as string);
  } catch {
    return undefined;
  }
}
