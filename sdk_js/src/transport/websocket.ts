/**
 * A WebSocket: that of the browser or of Node, and where Node has none (before 22) that of the
 * package `ws`.
 */

import { errorOfStatus } from "../core/answer.js";
import { NO_ANSWER } from "../core/choice.js";
import type { Loss } from "../core/loss.js";
import { encode, type OutFrame } from "../core/frame.js";
import { ConnectionLost } from "../wire/errors.js";
import type { Connection, Listener } from "./connection.js";

const SUBPROTOCOL = "pushlane.v1.json";
const ABNORMAL = 1006;
/** Scripts may close with 1000 and 3000 to 4999 only; to a server all but 1000 mean the same. */
const COME_BACK = 3001;

/** What `ws` tells and browsers don't: the answer in place of an upgrade. */
interface Talkative {
  on?(event: "unexpected-response", heard: (request: unknown, answer: Refusal) => void): void;
}
interface Refusal {
  statusCode: number;
  resume(): void;
}

/** The class to make WebSockets with; undefined when there is none. */
export async function findWebSocket(): Promise<typeof WebSocket | undefined> {
  if (typeof WebSocket === "function") return WebSocket;
  try {
    return (await import("ws")).WebSocket as unknown as typeof WebSocket;
  } catch {
    return undefined;
  }
}

/** One WebSocket. */
export class Socket implements Connection {
  private _socket: WebSocket;
  private _wasOpen = false;
  private _isOver = false;
  private _status: number | undefined;
  private _timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    make: typeof WebSocket,
    private _url: string,
    private _link: number,
    private _listener: Listener,
    private _hangupMs: number,
  ) {
    const socket = (this._socket = new make(_url, SUBPROTOCOL));
    socket.onopen = () => {
      this._wasOpen = true;
      if (!this._isOver) _listener.onOpen(_link);
    };
    socket.onmessage = ({ data }) => _listener.onHeard(_link, [decode(data)]);
    socket.onclose = ({ code, reason }) => this._end({ code, reason });
    socket.onerror = () => {}; // a close follows, which says more
    (socket as Talkative)["on"]?.("unexpected-response", (_, answer) => {
      this._status = answer["statusCode"];
      answer.resume();
      this._end({});
    });
  }

  send(frame: OutFrame): void {
    if (this._socket.readyState === 1) this._socket.send(encode(frame));
  }

  write(): void {}

  hangUp(code: number): void {
    try {
      this._socket.close(code === 1000 ? code : COME_BACK);
    } catch {
      // a socket of `ws` that is not connected yet throws, and is over
    }
    this._timer = setTimeout(() => this._end({}), this._wasOpen ? this._hangupMs : 0);
  }

  private _end(loss: Loss): void {
    if (this._isOver) return;
    this._isOver = true;
    clearTimeout(this._timer);
    this._listener.onLost(this._link, this._wasOpen ? loss : this._refusal());
  }

  /** There never was a connection. */
  private _refusal(): Loss {
    if (this._status !== undefined) {
      return { refused: this._status, error: errorOfStatus(this._status) };
    }
    const error = new ConnectionLost(`no connection to ${this._url}`);
    return { code: ABNORMAL, refused: NO_ANSWER, error };
  }
}

/** A frame; undefined for what is none. */
function decode(data: unknown): unknown {
  try {
    return JSON.parse(data as string);
  } catch {
    return undefined;
  }
}
