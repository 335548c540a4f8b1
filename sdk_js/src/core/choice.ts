/**
 * Which transport a client has: WebSocket or, where that can't be had, polling over HTTP.
 *
 * "auto" tries a WebSocket first. A refusal in place of the upgrade means that something between us
 * and the server doesn't let it through: then it is polling. So it is after a few attempts in a row
 * that failed in the server or a proxy, were cut, or stood still before the welcome. Bad
 * credentials and a server that is busy or not there say nothing about WebSockets.
 *
 * The first welcome decides for life. What was sent and not answered is repeated after a reconnect,
 * and the server tells repeats by a session's numbers here and by dedup ids there: a repeat on the
 * other transport could be stored twice.
 */

export type Transport = "ws" | "poll";
export type Wish = "auto" | Transport;

export const WISHES: readonly Wish[] = ["auto", "ws", "poll"];

/** In place of a status: the connection ended, or what came made no sense. */
export const NO_ANSWER = 0;
const NOT_ABOUT_US = [401, 403, 429, 503];
const SERVER_FAULT = 500;

/** What a client was told to use, and what it uses. */
export class Choice {
  transport: Transport;
  isMade: boolean;

  constructor(
    wish: Wish,
    private _triesLeft: number,
  ) {
    this.transport = wish === "poll" ? "poll" : "ws";
    this.isMade = wish !== "auto";
  }

  get isPolling(): boolean {
    return this.transport === "poll";
  }

  /** A handshake failed with this status; whether it is polling from now on. */
  refused(status: number): boolean {
    if (this.isMade || NOT_ABOUT_US.includes(status)) return false;
    this._triesLeft -= 1;
    const isSure = status > NO_ANSWER && status < SERVER_FAULT;
    if (!isSure && this._triesLeft > 0) return false;
    this.isMade = true;
    this.transport = "poll";
    return true;
  }
}
