/**
 * A pipe: the frames of a WebSocket over HTTP requests, where there is no WebSocket to be had.
 *
 * One request at a time brings frames to the server, what gathers meanwhile goes together; another
 * waits for frames from there. Both may be repeated when their connection breaks: sends are
 * numbered, and a receive says what it got last. So a proxy that cuts what is silent for too long
 * does no harm. A pipe that can't go on is lost as a WebSocket is, and the session is resumed.
 */

import type { Line } from "../core/line.js";
import { backoffMs } from "../core/retry.js";
import type { Loss } from "../core/shell.js";
import { ConnectionLost, PushlaneError } from "../wire/errors.js";
import type { PipeAnswer, PipeReceive, PipeSend } from "../wire/pipe.js";
import type { Connection, Listener } from "./connection.js";
import { ask } from "./http.js";

/** A receive that fails later than this was cut for its silence, most likely. */
const SOON_MS = 1000;
/** Receives in a row that fail sooner: the pipe is lost. */
const FAILURES = 3;
/** The part of a frame's bytes, in characters, that one request takes. */
const SHARE = 0.25;

/** Its first frame opens it. */
export function openPipe(base: string, { onHeard }: Listener, line: Line): Connection {
  const { settings, random } = line;
  const abort = new AbortController();
  let pipe: string | undefined;
  const waiting: string[] = [];
  let sends = 0;
  let close: number | undefined;
  let isSending = false;
  let timer: ReturnType<typeof setTimeout> | undefined;

  let end!: (loss: Loss) => void;
  const over = new Promise<Loss>((resolve) => {
    end = (loss) => {
      abort.abort();
      clearTimeout(timer);
      resolve(loss);
    };
  });
  /** Only the first request says that we are not wanted; later a new pipe may do. */
  const fail = (fault: PushlaneError) =>
    end({ error: pipe ? new ConnectionLost(fault.message, fault.retryMs) : fault });
  const post = async (body: string, waitMs = 0): Promise<PipeAnswer> => {
    const timeoutMs = settings.httpMs + waitMs;
    const url = `${base}/v1/pipe`;
    // The server lets nobody send much before it knows which pipe it is for.
    const headers: Record<string, string> = pipe ? { "Pushlane-Pipe": pipe } : {};
    const answer = await ask("POST", url, body, undefined, timeoutMs, abort.signal, headers);
    return (answer ?? {}) as PipeAnswer;
  };

  const send = async (): Promise<void> => {
    isSending = true;
    while (waiting.length || close) {
      let room = line.limits.frame_bytes * SHARE;
      let count = 1;
      while (count < waiting.length && (room -= waiting[count]!.length) > 0) count += 1;
      const texts = waiting.splice(0, count);
      const head: PipeSend = { frames: texts.length ? [0] : undefined, pipe };
      if (texts.length && pipe) head.n = ++sends;
      if (!waiting.length) head.close = close;
      const body = JSON.stringify(head).replace("[0]", () => `[${texts.join()}]`);
      try {
        const answer = await post(body).catch((fault: unknown) => {
          if (pipe && fault instanceof ConnectionLost) return post(body);
          throw fault;
        });
        if (head.close) return end({});
        if (!pipe) {
          // Some networks answer everything with a page to log in.
          if (!answer.pipe) throw new PushlaneError("unavailable", "no Pushlane");
          pipe = answer.pipe;
          void receive();
        }
      } catch (fault) {
        return fail(fault as PushlaneError);
      }
    }
    isSending = false;
  };

  const receive = async (): Promise<void> => {
    let after = 0;
    let failures = 0;
    while (!abort.signal.aborted) {
      const wait_ms = Math.min(settings.pollWaitMs, line.limits.wait_ms);
      const since = performance.now();
      let answer: PipeAnswer = {};
      try {
        const body: PipeReceive = { pipe: pipe!, after, wait_ms };
        answer = await post(JSON.stringify(body), wait_ms);
      } catch (fault) {
        const isBroken = fault instanceof ConnectionLost && failures < FAILURES;
        if (!isBroken) return fail(fault as PushlaneError);
      }
      const { n = after, frames = [], close } = answer;
      after = n;
      if (frames.length) onHeard(frames);
      if (close) return end(close);
      if (frames.length || performance.now() - since > SOON_MS) {
        failures = 0;
      } else {
        // Nothing came, and at once: a moment, or it would be a busy loop.
        const { retryBaseMs, retryMaxMs } = settings;
        const delay = backoffMs(retryBaseMs, retryMaxMs, failures++, random());
        await new Promise((resolve) => setTimeout(resolve, delay));
      }
    }
  };

  return {
    over,
    send(text) {
      waiting.push(text);
      // What is said soon after goes along: the ack of a short work with its start.
      if (!isSending) setTimeout(() => isSending || void send());
    },
    hangUp(code) {
      close = code;
      timer = setTimeout(() => end({}), pipe ? settings.hangupMs : 0);
      if (pipe && !isSending) void send();
    },
  };
}
