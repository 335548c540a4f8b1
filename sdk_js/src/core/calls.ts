/** Requests of the HTTP API. Names are checked before they become a part of a path. */

import { checkQueueName } from "../wire/names.js";

/** One request; the body is JSON text. */
export interface Call {
  method: string;
  target: string;
  body?: string | undefined;
}

/** The path of a queue, or of something below it; throws `bad_request` for a bad name. */
export const queuePath = (name: string, ...rest: string[]): string =>
  ["/v1/queues", checkQueueName(name), ...rest.map(encodeURIComponent)].join("/");

export const post = (target: string, body: unknown): Call => ({
  method: "POST",
  target,
  body: JSON.stringify(body),
});

export const get = (target: string): Call => ({ method: "GET", target });

export function query(values: Record<string, string | number | undefined>): string {
  const given = Object.entries(values).flatMap(([name, value]) =>
    value === undefined ? [] : `${name}=${encodeURIComponent(value)}`,
  );
  return given.length ? `?${given.join("&")}` : "";
}
