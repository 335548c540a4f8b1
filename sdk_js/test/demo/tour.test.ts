/** The minute that plays by itself, with a demo that only notes what it is told. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Demo } from "../../demo/demo.js";
import { STEPS, Tour } from "../../demo/tour.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function make() {
  const told: string[] = [];
  const grace = {
    held: 0,
    state: "open",
    kill: () => told.push("kill"),
    start: () => told.push("start"),
  };
  const demo = {
    book: { counts: { waiting: 0, dead: 1, acked: 7 }, published: 7 },
    consumers: [{ state: "open" }, grace],
    isAway: false,
    publish: async (count: number) => void told.push(`publish ${count}`),
    publishBad: async () => void told.push("publish a bad one"),
    restart: async () => void told.push("restart"),
    redrive: async () => void told.push("redrive"),
  };
  return { told, demo, grace, tour: new Tour(demo as unknown as Demo) };
}

test("every step is played, each long enough to be read", async () => {
  const { told, tour, grace } = make();
  grace.state = "killed";
  const shown: (number | null)[] = [];
  tour.onChange = () => shown.push(tour.at);
  const over = tour.play();
  await vi.advanceTimersByTimeAsync(STEPS.length * 3900);
  expect(tour.at).not.toBe(null);
  await vi.advanceTimersByTimeAsync(STEPS.length * 300);
  await over;
  expect(shown).toEqual([...STEPS.keys(), null]);
  expect(told).toEqual([
    "publish 100", "kill", "publish a bad one", "publish 100", "restart", "start", "redrive",
  ]); // prettier-ignore
});

test("a step waits for what it shows, but not for ever", async () => {
  const { demo, tour } = make();
  demo.book.counts.waiting = 99;
  void tour.play();
  await vi.advanceTimersByTimeAsync(29_000);
  expect(tour.at).toBe(0);
  await vi.advanceTimersByTimeAsync(2000);
  expect(tour.at).toBe(1);
  tour.stop();
});

test("it stops at once, and does nothing more", async () => {
  const { told, tour } = make();
  const over = tour.play();
  await vi.advanceTimersByTimeAsync(500);
  tour.stop();
  expect(tour.at).toBe(null);
  await vi.advanceTimersByTimeAsync(60_000);
  await over;
  expect(told).toEqual(["publish 100"]);
});
