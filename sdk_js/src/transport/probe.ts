/** Whether a WebSocket can be had: one that is opened, greeted and closed again. */

import type { Listener } from "./connection.js";
import { Socket } from "./websocket.js";

const DONE = 1000;

/** `tell` is called once, within a bounded time; the function that is returned calls it now. */
export function probe(
  make: typeof WebSocket,
  url: string,
  token: string | undefined,
  timeoutMs: number,
  tell: (isGood: boolean) => void,
): () => void {
  let isOver = false;
  const end = (isGood: boolean) => {
    if (isOver) return;
    isOver = true;
    clearTimeout(timer);
    socket.hangUp(DONE);
    tell(isGood);
  };
  const listener: Listener = {
    onOpen: () => socket.send({ op: "hello", ...(token && { token }) }),
    onHeard: (_, [frame]) => end((frame as { op?: unknown } | undefined)?.op === "welcome"),
    onLost: () => end(false),
  };
  const socket = new Socket(make, url, 0, listener, timeoutMs);
  const timer = setTimeout(end, timeoutMs, false);
  return () => end(false);
}
