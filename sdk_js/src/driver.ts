/**
 * Drives the core: reports what happens, and carries out its effects.
 *
 * `run` is a turn: whoever is hungry takes messages, the core flushes, and effects are carried out
 * until there are none. Calls of users and frames of the server ask for a turn with `soon`: it
 * comes when all that is ready now has run, so what is published and acked meanwhile shares frames.
 */

import { Clock, makeLater } from "./clock.js";
import type { ClientCore } from "./core/client.js";
import type { Effect, State } from "./core/effects.js";
import type { Loss } from "./core/loss.js";
import { Poll } from "./core/poll.js";
import type { Endpoint } from "./core/url.js";
import { look } from "./transport/auto.js";
import type { Connection, Listener } from "./transport/connection.js";
import { Poller } from "./transport/poll.js";
import { probe } from "./transport/probe.js";
import { Socket } from "./transport/websocket.js";
import { ConnectionLost, PushlaneError } from "./wire/errors.js";

/** Credentials, or a function (async or not) that is asked for them at every connect. */
export type Token = string | (() => string | null | undefined | Promise<string | null | undefined>);

/** The longest time that a timer takes. */
const TIMER_MS = 2 ** 31 - 1;
const WAKING = ["online", "pageshow", "visibilitychange"];

/** One client's core, connections and timer. */
export class Driver implements Listener {
  /** Who wants to take messages in the next turn. */
  readonly hungry = new Set<() => void>();
  private _clock = new Clock();
  private _later = makeLater();
  private _connections = new Map<number, Connection>();
  private _tokens = new Map<number, string | undefined>();
  private _poll: Poll | undefined;
  private _endProbe: (() => void) | undefined;
  /** Who waits until all connections are gone. */
  private _mourners: (() => void)[] = [];
  private _isScheduled = false;
  private _isRunning = false;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _timerAt = Infinity;

  constructor(
    readonly core: ClientCore,
    private _endpoint: Endpoint,
    private _token: Token | undefined,
    private _webSocket: typeof WebSocket | undefined,
    private _onState: (state: State, error: PushlaneError | null) => void,
  ) {
    for (const event of WAKING) globalThis.addEventListener?.(event, this._wake);
  }

  /** The core's time. */
  now(): number {
    return this._clock.now();
  }

  /** Have a turn after all that is ready now. */
  soon(): void {
    if (this._isScheduled) return;
    this._isScheduled = true;
    this._later(() => {
      if (this._isScheduled) this.run();
    });
  }

  /** One turn. */
  run(): void {
    if (this._isRunning) {
      this.soon();
      return;
    }
    this._isScheduled = false;
    this._isRunning = true;
    try {
      this._turn();
    } finally {
      this._isRunning = false;
    }
    this._setTimer();
  }

  private _turn(): void {
    const { core, hungry } = this;
    for (;;) {
      for (const take of hungry) {
        hungry.delete(take);
        take();
      }
      core.flush(this.now());
      if (!core.effects.length) break;
      for (const effect of core.effects.splice(0)) this._carryOut(effect);
    }
    for (const connection of [...this._connections.values()]) connection.write();
  }

  private _carryOut(effect: Effect): void {
    switch (effect.kind) {
      case "resolve":
        return effect.ticket.resolve(effect.value);
      case "send":
        return this._connections.get(effect.link)?.send(effect.frame);
      case "ready":
        return effect.subscription.owner.ready();
      case "reject":
        return effect.ticket.reject(effect.error);
      case "lost":
        return effect.lease.owner?.cancel();
      case "ended":
        return effect.subscription.owner.ended(effect.error);
      case "dial":
        return void this._dial(effect.link, effect.transport === "poll");
      case "hangup":
        return this._connections.get(effect.link)?.hangUp(effect.code);
      case "probe":
        return void this._probe(effect.link);
      case "state":
        if (effect.state === "closed") this._stop();
        return this._onState(effect.state, effect.error);
    }
  }

  // Time

  private _setTimer(): void {
    const at = this.core.wakeAt() ?? Infinity;
    if (at >= this._timerAt || at === Infinity) return;
    clearTimeout(this._timer);
    this._timerAt = at;
    this._timer = setTimeout(this._tick, Math.min(TIMER_MS, Math.max(0, at - this.now())));
  }

  private _tick = (): void => {
    this._timerAt = Infinity;
    this.core.tick(this.now());
    this.run();
  };

  /** The page is shown again, or the network is back. */
  private _wake = (): void => {
    if (globalThis.document?.hidden) return;
    this.core.nudge(this.now());
    this.run();
  };

  private _stop(): void {
    clearTimeout(this._timer);
    this._endProbe?.();
    for (const event of WAKING) globalThis.removeEventListener?.(event, this._wake);
  }

  // Connections

  /** The credentials for a new connection or a request. */
  async token(): Promise<string | undefined> {
    const token = typeof this._token === "function" ? await this._token() : this._token;
    return token ?? undefined;
  }

  private async _dial(link: number, isPoll: boolean): Promise<void> {
    const { hangupMs } = this.core.settings;
    try {
      this._tokens.set(link, await this._askToken());
      if (this.core.state === "closed") return;
      const connection = isPoll
        ? new Poller(link, this._pollOf(), this._endpoint.http, this, hangupMs, () => this.now())
        : new Socket(this._webSocket!, this._endpoint.ws, link, this, hangupMs);
      this._connections.set(link, connection);
      if (isPoll) this.onOpen(link);
    } catch (fault) {
      this._lost(link, { error: fault as PushlaneError });
    }
  }

  /** The session of polling. One that is leaving may still have something to say. */
  private _pollOf(): Poll {
    const { core } = this;
    if (!this._poll || this._poll.isLeaving) {
      this._poll = new Poll(core.settings, Math.random, (sub) => core.consumer.room(sub));
    }
    return this._poll;
  }

  private async _probe(link: number): Promise<void> {
    const tell = (isGood: boolean) => {
      this.core.probed(link, isGood, this.now());
      this.run();
    };
    const { settings } = this.core;
    try {
      const token = await this._askToken();
      if (this.core.state === "closed") return;
      const { ws } = this._endpoint;
      this._endProbe = probe(this._webSocket!, ws, token, settings.upgradeMs, tell);
    } catch {
      tell(false);
    }
  }

  private async _askToken(): Promise<string | undefined> {
    try {
      return await this.token();
    } catch (fault) {
      if (fault instanceof PushlaneError) throw fault;
      throw new ConnectionLost(`no token: ${String(fault)}`, undefined, { cause: fault });
    }
  }

  onOpen(link: number): void {
    this.core.connected(link, this._tokens.get(link), this.now());
    this.run();
  }

  onHeard(link: number, frames: unknown[]): void {
    this.core.received(link, frames, this.now());
    this.soon();
  }

  /** Resolves when no connection is left: what was said last is said, within a bounded time. */
  gone(): Promise<void> {
    return new Promise((resolve) => {
      if (this._connections.size) this._mourners.push(resolve);
      else resolve();
    });
  }

  onLost(link: number, loss: Loss): void {
    this._connections.delete(link);
    if (!this._connections.size) for (const tell of this._mourners.splice(0)) tell();
    if (loss.refused !== undefined && this.core.isChoosing) {
      void look(loss, this._endpoint.http).then((seen) => this._lost(link, seen));
    } else {
      this._lost(link, loss);
    }
  }

  private _lost(link: number, loss: Loss): void {
    this._tokens.delete(link);
    this.core.lost(link, this.now(), loss);
    this.run();
  }
}
