/**
 * Where the server is: from what users write to the address that a client needs.
 *
 * `ws`, `wss`, `http` and `https` mean the same server, with or without `/v1/ws`; a path before
 * that is kept, for servers behind a proxy. Credentials don't belong into a URL, and are refused.
 */

import { badRequest } from "../wire/errors.js";

export const DEFAULT_URL = "ws://127.0.0.1:8420";

const SERVER = /^(?:ws|http)(s?:\/\/[^\s/?#@][^\s?#@]*?)\/*(?:\/v1\/ws)?\/*$/;

const READABLE = /^http:..(?!(([^/]*\.)?localhost|127[.\d]+|\[::1])([:/]|$))/i;

/** Whether others can read what is sent there: it leaves this machine, without TLS. */
export function isReadable(base: string): boolean {
  return READABLE.test(base);
}

/** Where requests go, as http or https, without a slash in the end; throws `bad_request`. */
export function parseUrl(text: string): string {
  const found = SERVER.exec(text);
  // It is not repeated here: it may hold credentials.
  if (!found) throw badRequest("not a server URL; use ws://HOST:PORT");
  return `http${found[1]}`;
}
