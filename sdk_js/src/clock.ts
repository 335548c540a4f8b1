/** Time that also passes while a machine sleeps. */

const SLEPT_MS = 1000;

/**
 * A steady clock that also counts the time that a machine has slept: milliseconds since it was made.
 *
 * Monotonic clocks of browsers may stand still while a laptop sleeps, and leases run out meanwhile.
 * So a wall clock that ran ahead counts, too: it slept, or somebody set the clock, and then we are
 * only more careful than needed. A wall clock that was set back is ignored.
 */
export function makeClock(): () => number {
  let now = 0;
  let steady = performance.now();
  let wall = Date.now();
  return () => {
    const passed = -steady + (steady = performance.now());
    const ahead = -wall + (wall = Date.now()) - passed;
    return (now += ahead > SLEPT_MS ? passed + ahead : passed);
  };
}
