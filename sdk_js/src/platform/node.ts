/** What Node has and browsers don't; platform/browser.ts takes its place in the bundle. */

import { badRequest } from "../wire/errors.js";

/** The class to make WebSockets with, before Node 22 that of the package `ws`; undefined when there
 * is none. */
export async function findWebSocket(isNeeded: boolean): Promise<typeof WebSocket | undefined> {
  if (typeof WebSocket === "function") return WebSocket;
  try {
    return (await import("ws")).WebSocket as unknown as typeof WebSocket;
  } catch {
    const advice = "no WebSocket here: install the package ws, or use Node 22";
    if (isNeeded) throw badRequest(advice);
    if (!hasWarned) process.emitWarning(`pushlane polls over HTTP, which is slower: ${advice}`);
    hasWarned = true;
    return undefined;
  }
}

/** Once in a process is enough. */
let hasWarned = false;

/** What `ws` tells and browsers don't: the answer in place of an upgrade. */
interface Talkative {
  on?(event: "unexpected-response", heard: (request: unknown, answer: Refusal) => void): void;
}
interface Refusal {
  statusCode: number;
  resume(): void;
}

/** Hear of an HTTP status in place of an upgrade. */
export function onRefused(socket: WebSocket, tell: (status: number) => void): void {
  (socket as Talkative).on?.("unexpected-response", (_, answer) => {
    answer.resume();
    tell(answer.statusCode);
  });
}

export function closeSocket(socket: WebSocket, code: number): void {
  try {
    socket.close(code);
  } catch {
    // one of `ws` that was refused throws, and is over
  }
}

const variable = (name: string): string | undefined => globalThis.process?.env[name] || undefined;

/** Where the server is, and what it wants to see, as far as the environment says. */
export const givenUrl = (): string | undefined => variable("PUSHLANE_URL");
export const givenToken = (): string | undefined => variable("PUSHLANE_TOKEN");

/** Has it called back after what is ready now has run. */
export const makeLater = (callback: () => void) => (): void => void setImmediate(callback);

/** Have it called when the network or the page is back, until the function returned is called. */
export const onWake = (_callback: () => void) => (): void => {};
