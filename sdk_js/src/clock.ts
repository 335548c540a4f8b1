/**
 * A steady clock that also counts the time that a machine has slept.
 *
 * Monotonic clocks of browsers may stand still while a laptop sleeps, and leases run out meanwhile.
 * So a wall clock that ran ahead counts, too: it slept, or somebody set the clock, and then we are
 * only more careful than needed. A wall clock that was set back is ignored.
 */

const SLEPT_MS = 1000;

export class Clock {
  private _now = 0;
  private _steady: number;
  private _wall: number;

  constructor(
    private _readSteady = () => performance.now(),
    private _readWall = () => Date.now(),
  ) {
    this._steady = _readSteady();
    this._wall = _readWall();
  }

  /** Milliseconds since the clock was made. */
  now(): number {
    const steady = this._readSteady();
    const wall = this._readWall();
    const passed = steady - this._steady;
    const ahead = wall - this._wall - passed;
    this._now += ahead > SLEPT_MS ? passed + ahead : passed;
    this._steady = steady;
    this._wall = wall;
    return this._now;
  }
}

type Later = (callback: () => void) => void;

/** Calls back after what is ready now has run, without the delay that browsers give timers. */
export function makeLater(): Later {
  if (typeof setImmediate === "function") return (callback) => void setImmediate(callback);
  const { port1, port2 } = new MessageChannel();
  let waiting: (() => void)[] = [];
  port1.onmessage = () => {
    const due = waiting;
    waiting = [];
    for (const callback of due) callback();
  };
  return (callback) => {
    waiting.push(callback);
    port2.postMessage(0);
  };
}
