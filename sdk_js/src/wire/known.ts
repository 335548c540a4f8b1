/** Which frames of a server a client can read: newer servers may have others. */

import type { ServerFrame } from "./frames.js";
import { NEEDED } from "./tables.js";

/** Whether it is a frame that we know, with all that it must have. */
export function isFrame(frame: object): frame is ServerFrame {
  const fields = frame as Record<string, unknown>;
  const needed = NEEDED[fields["op"] as string];
  return (
    !!needed &&
    Object.entries(needed).every(([name, kind]) => {
      const value = fields[name];
      return value !== null && kind === (Array.isArray(value) ? "a" : (typeof value)[0]);
    })
  );
}
