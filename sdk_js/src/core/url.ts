/**
 * Where the server is: from what users write to the two addresses that a client needs.
 *
 * `ws`, `wss`, `http` and `https` mean the same server, with or without `/v1/ws`; a path before
 * that is kept, for servers behind a proxy. Credentials don't belong into a URL, and are refused.
 */

import { badRequest } from "../wire/errors.js";

export const DEFAULT_URL = "ws://127.0.0.1:8420";
const SOCKET = "/v1/ws";

/** A server's addresses. */
export interface Endpoint {
  ws: string;
  http: string;
}

/** Read a server's URL; throws `bad_request` saying what is wrong with it. */
export function parseUrl(text: string): Endpoint {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw badRequest(`${JSON.stringify(text)} is no URL`);
  }
  const found = /^(?:ws|http)(s?):$/.exec(url.protocol);
  if (!found || !url.host) {
    throw badRequest(`${text} is no URL of a server: it begins with ws, wss, http or https`);
  }
  if (url.username || url.password) {
    throw badRequest("a URL must not hold credentials: pass them as token");
  }
  if (url.search || url.hash) throw badRequest("the URL of a server has no query and no fragment");
  const path = url.pathname.replace(/\/+$/, "");
  const prefix = (path.endsWith(SOCKET) ? path.slice(0, -SOCKET.length) : path).replace(/\/+$/, "");
  const address = `${found[1]}://${url.host}${prefix}`;
  return { ws: `ws${address}${SOCKET}`, http: `http${address}` };
}
