/** Names of queues and topics: parts of URLs and file names, hence the small alphabet. */

import { badRequest } from "./errors.js";

const NAME = /^[\w-][\w.-]{0,119}$/;
const TOPIC = "topic:";

/** The name of a queue itself; throws `bad_request`. */
export function checkQueueName(name: unknown): string {
  if (typeof name !== "string" || !NAME.test(name)) {
    const shown = JSON.stringify(name)?.slice(0, 150) ?? typeof name;
    throw badRequest(
      `${shown} is no name: 1 to 120 of A-Z a-z 0-9 . _ -, and no dot in the beginning`,
    );
  }
  return name;
}

/** A `to` or `from`: `topic:NAME`, or the name of a queue. */
export function checkTarget(text: unknown): void {
  const isTopic = typeof text === "string" && text.startsWith(TOPIC);
  checkQueueName(isTopic ? text.slice(TOPIC.length) : text);
}
