/** The small things: clock, queue, URLs, settings, limits, text. */
import { describe, expect, test } from "vitest";
import { Clock } from "../../src/clock.js";
import { Fifo } from "../../src/core/fifo.js";
import { Held } from "../../src/core/held.js";
import { Lease } from "../../src/core/lease.js";
import { Publication } from "../../src/core/publication.js";
import { settingsOf } from "../../src/core/settings.js";
import { Subscription } from "../../src/core/subscription.js";
import { Table } from "../../src/core/table.js";
import { parseUrl } from "../../src/core/url.js";
import { DEFAULT_LIMITS, limitsOf } from "../../src/wire/limits.js";
import { byteLength, cut, fromBase64, toBase64, toJson } from "../../src/wire/text.js";
import { range } from "../live/help.js";
import { Slip } from "./rig.js";

test("a clock counts sleep, and no step back", () => {
  let [steady, wall] = [0, 1000];
  const clock = new Clock(
    () => steady,
    () => wall,
  );
  [steady, wall] = [100, 1100];
  expect(clock.now()).toBe(100);
  wall += 60_000; // it slept: the steady clock stood still
  expect(clock.now()).toBe(60_100);
  [steady, wall] = [200, 0]; // somebody set the clock
  expect(clock.now()).toBe(60_200);
  [steady, wall] = [300, 900]; // a little ahead is no sleep
  expect(clock.now()).toBe(60_300);
});

test("a queue is first in, first out", () => {
  const fifo = new Fifo<number>();
  for (const n of range(5000)) fifo.push(n);
  expect(range(3000).map(() => fifo.shift())).toEqual(range(3000));
  fifo.filter((n) => n % 2 === 0);
  expect([fifo.length, fifo.first, [...fifo].at(-1)]).toEqual([1000, 3000, 4998]);
  fifo.clear();
  expect([fifo.shift(), fifo.length]).toEqual([undefined, 0]);
});

test.each([
  ["ws://h", "ws://h/v1/ws", "http://h"],
  ["https://h:8/", "wss://h:8/v1/ws", "https://h:8"],
  ["wss://h/v1/ws/", "wss://h/v1/ws", "https://h"],
  ["http://[::1]:5/a/b/", "ws://[::1]:5/a/b/v1/ws", "http://[::1]:5/a/b"],
])("%s", (url, ws, http) => expect(parseUrl(url)).toEqual({ ws, http }));

test.each(["h:1", "//h", "ftp://h", "ws://u@h", "ws://h?q", "ws://h#f", "ws://", ""])("%s", (url) =>
  expect(() => parseUrl(url)).toThrow(expect.objectContaining({ code: "bad_request" })),
);

test("settings are checked", () => {
  expect(settingsOf({ closeMs: 5 }).closeMs).toBe(5);
  expect(() => settingsOf({ closeMs: 0.5 })).toThrow("closeMs is 0.5");
  expect(() => settingsOf({ producerWindow: 1025 })).toThrow("at most 1024");
  expect(() => settingsOf({ nonsense: 1 } as never)).toThrow("no option nonsense");
  expect(() => settingsOf(null as never)).toThrow("no object");
});

test("limits that contradict themselves are the defaults", () => {
  expect(limitsOf({ batch: 5, unknown: 1 })).toEqual({ ...DEFAULT_LIMITS, batch: 5 });
  for (const bad of [{ batch: 0 }, { batch: "5" }, { lease_ms_min: 9000, lease_ms_max: 2000 }]) {
    expect(limitsOf({ credit: 7, ...bad })).toEqual(DEFAULT_LIMITS);
  }
});

describe("text", () => {
  test("sizes, cuts, base64", () => {
    expect([byteLength("ab"), byteLength("ü€😀")]).toEqual([2, 9]);
    expect([cut("aüü", 4), cut("😀", 3)]).toEqual(["aü", ""]);
    const bytes = Uint8Array.from(range(20_000).map((n) => n % 256));
    expect(fromBase64(toBase64(bytes))).toEqual(bytes);
  });

  test("JSON that servers take", () => {
    const nested = (depth: number) => JSON.parse("[".repeat(depth) + "]".repeat(depth)) as unknown;
    expect(toJson(nested(500)).length).toBe(1000);
    expect(() => toJson(nested(501))).toThrow("deeper than 500");
    expect(toJson(`"[\\${"[".repeat(600)}`)).toContain("[[[");
    const circle: unknown[] = [];
    circle.push(circle);
    for (const bad of [circle, Symbol("s"), 1n, undefined]) {
      expect(() => toJson(bad)).toThrow("can't be written as JSON");
    }
    expect(toJson({ toJSON: () => NaN })).toBe("null");
  });

  test("half pairs are refused, wherever they stand; what looks like one is not", () => {
    const make = (body: unknown, headers?: Record<string, string>) =>
      new Publication(body, { headers }, new Slip()).text;
    expect(make("\\ud800")).toBe(String.raw`{"body":"\\ud800"`);
    expect(make("😀")).toBe('{"body":"😀"');
    for (const bad of ["\ud800", "x\\\udfff", ["\ud83d"]]) {
      expect(() => make(bad)).toThrow("surrogate");
    }
    expect(() => make(1, { a: "\udc00" })).toThrow("surrogate");
  });
});

test("a table has things by number, in their order", () => {
  const table = new Table<string>();
  for (const number of [7, 3, 2 ** 33, 5]) table.add(number, `n${number}`);
  expect(table.values().slice(0, 3)).toEqual(["n3", "n5", "n7"]);
  expect([table.delete(5), table.delete(5), table.get(5), table.size]).toEqual([
    true,
    false,
    undefined,
    3,
  ]);
  table.clear();
  expect([table.size, table.values()]).toEqual([0, []]);
});

test("leases are held by receipt", () => {
  const subscription = new Subscription("q", 1, "explicit", undefined, null);
  const lease = (receipt: string) =>
    new Lease(subscription, { id: "m", attempt: 1, published_at: 0, receipt });
  const held = new Held();
  const [one, two, other] = [lease("a.b.1"), lease("a.b.2"), lease("c.1")];
  expect([one, two, other].map((each) => held.add(each))).toEqual([true, true, true]);
  expect(held.add(lease("a.b.1"))).toBe(false);
  expect([held.get("a.b.1"), held.get("c.1"), held.get("c.2")]).toEqual([one, other, undefined]);
  held.delete(one);
  held.delete(one);
  expect([held.size, held.values()]).toEqual([2, [two, other]]);
});
