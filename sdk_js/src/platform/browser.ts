/** Browsers' side of platform/node.ts. */

import type * as node from "./node.js";

export const findWebSocket: typeof node.findWebSocket = async () => WebSocket;

/** Browsers say nothing of it. */
export const onRefused: typeof node.onRefused = () => {};

export const closeSocket: typeof node.closeSocket = (socket, code) => socket.close(code);

/** There are no variables. */
export const givenUrl: typeof node.givenUrl = () => undefined;
export const givenToken: typeof node.givenToken = () => undefined;

/** Without the delay that browsers give timers. */
export const makeLater: typeof node.makeLater = (callback) => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = callback;
  return () => port2.postMessage(0);
};

const WAKING = ["online", "pageshow", "visibilitychange"];

/** A worker has no document. */
export const onWake: typeof node.onWake = (callback) => {
  const wake = () => globalThis.document?.hidden || callback();
  for (const event of WAKING) addEventListener(event, wake);
  return () => {
    for (const event of WAKING) removeEventListener(event, wake);
  };
};
