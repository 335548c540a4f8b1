/**
 * Drives the core: reports what happens, and does what it wants.
 *
 * `run` is a turn: whoever is hungry takes messages, and the core flushes. Calls of users and frames
 * of the server ask for a turn with `soon`: it comes when all that is ready now has run, so what is
 * published and acked meanwhile shares frames.
 */

import { makeClock } from "./clock.js";
import { NO_ANSWER, type Transport } from "./core/choice.js";
import { makeCore } from "./core/client.js";
import type { CoreOptions, Loss, State } from "./core/shell.js";
import { makeLater, onWake } from "./platform/node.js";
import { type Connection, type Listener, look } from "./transport/connection.js";
import { openPipe } from "./transport/pipe.js";
import { openSocket } from "./transport/websocket.js";
import { ConnectionLost, PushlaneError } from "./wire/errors.js";
import type { Hello } from "./wire/frames.js";

/** Credentials, or a function (async or not) that is asked for them at every connect. */
export type Token = string | (() => string | null | undefined | Promise<string | null | undefined>);

/** The longest time that a timer takes. */
const TIMER_MS = 2 ** 31 - 1;
const NORMAL = 1000;
/** Calls that don't wait for the end of a turn. */
const ENOUGH = 160;

export type Driver = ReturnType<typeof makeDriver>;

/** One client's core, connections and timer. */
export function makeDriver(
  options: CoreOptions,
  base: string,
  credentials: Token | undefined,
  webSocket: typeof WebSocket | undefined,
  onState: (state: State, error: PushlaneError | null) => void,
) {
  /** Who wants to take messages, or has brought frames, in the next turn. */
  const hungry = new Set<() => void>();
  const connections = new Map<number, Connection>();
  let probing: Connection | undefined;
  let wishes = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let timerAt = Infinity;
  const now = makeClock();
  const core = makeCore(
    {
      dial,
      probe,
      changed,
      send: (link, text) => connections.get(link)?.send(text),
      hangUp: (link, code) => connections.get(link)?.hangUp(code),
    },
    options,
  );
  const { settings } = options;

  // Turns

  const later = makeLater(run);

  /** Have a turn after all that is ready now, or when enough has gathered: then the server has its
   * part of it while we go on. */
  function soon(): void {
    if (!wishes++) later();
    if (wishes === ENOUGH) run();
  }

  function feed(): void {
    for (const take of hungry) {
      hungry.delete(take);
      take();
    }
  }

  /** One turn. */
  function run(): void {
    wishes = 0;
    do {
      feed();
      core.flush(now());
    } while (hungry.size);
    const at = core.wakeAt();
    if (at >= timerAt) return;
    clearTimeout(timer);
    timerAt = at;
    timer = setTimeout(tick, Math.min(TIMER_MS, at - now()));
  }

  function tick(): void {
    timerAt = Infinity;
    core.tick(now());
    run();
  }

  /** The page is shown again, or the network is back. */
  const sleep = onWake(() => {
    core.nudge(now());
    run();
  });

  // What the core wants

  function changed(state: State, error: PushlaneError | null): void {
    if (state === "closed") {
      clearTimeout(timer);
      probing?.hangUp(NORMAL);
      sleep();
    }
    queueMicrotask(() => onState(state, error)); // users may call back
  }

  /** The credentials for a new connection or a request. */
  async function token(): Promise<string | undefined> {
    const found = typeof credentials === "function" ? await credentials() : credentials;
    return found || undefined;
  }

  const open = (listener: Listener) =>
    openSocket(webSocket!, base, listener, settings.hangupMs, core.isChoosing);

  async function dial(link: number, transport: Transport): Promise<void> {
    let loss: Loss;
    try {
      const shown = await token();
      if (core.state === "closed") return;
      const listener: Listener = {
        onOpen() {
          core.connected(link, shown);
          run();
        },
        onHeard(frames) {
          // What all of them lead to shares frames, too.
          hungry.add(() => core.received(link, frames, now()));
          soon();
        },
      };
      const isPoll = transport === "poll";
      const connection = isPoll ? openPipe(base, listener, core) : open(listener);
      connections.set(link, connection);
      if (isPoll) listener.onOpen();
      loss = await connection.over;
      connections.delete(link);
      if (loss.refused === NO_ANSWER) loss = await look(base, loss, core.isChoosing());
    } catch (cause) {
      const isOurs = cause instanceof PushlaneError;
      loss = { error: isOurs ? cause : new ConnectionLost(`no token: ${cause}`, null, { cause }) };
    }
    feed(); // what it said last counts
    core.lost(link, now(), loss);
    run();
  }

  async function probe(link: number): Promise<void> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const isGood = await new Promise<boolean>((tell) => {
      const no = () => tell(false);
      const begin = (token: string | undefined) => {
        if (core.state === "closed") return;
        const hello = { op: "hello", token } as Hello;
        probing = open({
          onOpen: () => probing!.send(JSON.stringify(hello)),
          onHeard: ([frame]) => tell((frame as { op?: string } | undefined)?.op === "welcome"),
        });
        void probing.over.then(no);
        timer = setTimeout(no, settings.upgradeMs);
      };
      token().then(begin, no);
    });
    clearTimeout(timer);
    probing?.hangUp(NORMAL);
    core.probed(link, isGood, now());
    run();
  }

  /** Resolves when no connection is left: what was said last is said, within a bounded time. */
  const gone = () => Promise.all([...connections.values()].map(({ over }) => over));

  return { core, hungry, now, soon, run, token, gone };
}
