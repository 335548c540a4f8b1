/**
 * Frames on their way out. They stay objects until a transport writes them: a WebSocket as one
 * text, polling as parts of HTTP requests. A publish holds messages that are JSON text already.
 */

import type { ClientFrame, Publish } from "../wire/frames.js";
import type { Publication } from "./publication.js";

/** A publish with messages that were encoded when they were published. */
export interface PublishFrame {
  op: "publish";
  id: number;
  to: string;
  messages: Publication[];
}

export type OutFrame = Exclude<ClientFrame, Publish> | PublishFrame;

/** The text of a frame. */
export function encode(frame: OutFrame): string {
  if (frame.op !== "publish") return JSON.stringify(frame);
  const messages = frame.messages.map(({ text, seq }) => `${text},"seq":${seq}}`);
  return `{"op":"publish","id":${frame.id},"to":"${frame.to}","messages":[${messages.join()}]}`;
}
