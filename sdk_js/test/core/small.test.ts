/** The small things: clock, queue, URLs, settings, limits, text. */
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { makeClock } from "../../src/clock.js";
import { Lease, runs } from "../../src/core/lease.js";
import { Publication } from "../../src/core/publication.js";
import { settingsOf } from "../../src/core/settings.js";
import { Subscription } from "../../src/core/subscription.js";
import { Table } from "../../src/core/table.js";
import { connect } from "../../src/client.js";
import { isReadable, parseUrl } from "../../src/core/url.js";
import { limitsOf } from "../../src/wire/limits.js";
import { LIMITS } from "../../src/wire/tables.js";
import { byteLength, cut, fromBase64, toBase64, toJson } from "../../src/wire/text.js";
import { range } from "../live/help.js";
import { Slip } from "./rig.js";

test("a clock counts sleep, and no step back", () => {
  let [steady, wall] = [0, 1000];
  vi.spyOn(performance, "now").mockImplementation(() => steady);
  vi.spyOn(Date, "now").mockImplementation(() => wall);
  onTestFinished(() => void vi.restoreAllMocks());
  const clock = makeClock();
  [steady, wall] = [100, 1100];
  expect(clock()).toBe(100);
  wall += 60_000; // it slept: the steady clock stood still
  expect(clock()).toBe(60_100);
  [steady, wall] = [200, 0]; // somebody set the clock
  expect(clock()).toBe(60_200);
  [steady, wall] = [300, 900]; // a little ahead is no sleep
  expect(clock()).toBe(60_300);
});

test.each([
  ["ws://h", "http://h"],
  ["https://h:8/", "https://h:8"],
  ["wss://h/v1/ws/", "https://h"],
  ["http://[::1]:5/a/b/", "http://[::1]:5/a/b"],
  ["ws://h/a/v1/ws", "http://h/a"],
])("%s", (url, base) => expect(parseUrl(url)).toBe(base));

test.each([
  "h:1",
  "//h",
  "ftp://h",
  "ws://u@h",
  "ws://h?q",
  "ws://h#f",
  "ws://",
  "",
  "ws://u:p@h/x",
])("%s", (url) =>
  expect(() => parseUrl(url)).toThrow(expect.objectContaining({ code: "bad_request" })),
);

test.each([
  ["ws://127.0.0.1:8420", false],
  ["http://127.1.2.3/a", false],
  ["ws://localhost", false],
  ["ws://a.localhost:5", false],
  ["ws://[::1]:5", false],
  ["wss://example.org", false],
  ["ws://example.org", true],
  ["ws://127.0.0.1.example.org", true],
  ["ws://localhost.example.org:8420/a", true],
  ["http://10.0.0.1:8420", true],
  ["ws://[2001:db8::1]", true],
  ["ws://example.org/a.localhost/b", true],
])("whether others can read what goes to %s", (url, readable) =>
  expect(isReadable(parseUrl(url))).toBe(readable),
);

test("a token without TLS to another machine gets one warning", async () => {
  const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
  onTestFinished(() => void vi.restoreAllMocks());
  const wrong = { settings: { nonsense: 1 } as never }; // so that nothing is dialled
  for (const [url, token] of [
    ["ws://10.0.0.1", undefined],
    ["wss://10.0.0.1", "s3cret"],
    ["ws://127.0.0.1", "s3cret"],
    ["ws://10.0.0.1", "s3cret"],
  ] as const)
    await expect(connect(url, { token, ...wrong })).rejects.toThrow("nonsense");
  expect(warn).toHaveBeenCalledTimes(1);
  expect(warn).toHaveBeenCalledWith(expect.stringMatching(/10\.0\.0\.1 without TLS.*wss/));
  expect(String(warn.mock.calls)).not.toContain("s3cret");
});

test("settings are checked", () => {
  expect(settingsOf({ closeMs: 5 }).closeMs).toBe(5);
  expect(() => settingsOf({ closeMs: 0.5 })).toThrow("closeMs is 0.5");
  expect(() => settingsOf({ nonsense: 1 } as never)).toThrow("no option nonsense");
  expect(() => settingsOf({ close: 1 } as never)).toThrow("no option close: did you mean closeMs?");
});

test.each([
  ["delay", "delayMs"],
  ["delay_ms", "delayMs"],
  ["ttl", "ttlMs"],
  ["priorty", "priority"],
  ["header", "headers"],
  ["dedupe", "dedup"],
])("a message has no %s, but %s", (name, known) => {
  const make = () => new Publication(1, { [name]: 5 } as never, undefined!);
  expect(make).toThrow(`no option ${name}: did you mean ${known}?`);
  expect(make).toThrow(expect.objectContaining({ code: "bad_request" }));
});

test("limits that a welcome doesn't name have their defaults", () => {
  expect(limitsOf({ batch: 5 })).toEqual({ ...LIMITS, batch: 5 });
  expect(limitsOf()).toEqual(LIMITS);
});

describe("text", () => {
  test("sizes, cuts, base64", () => {
    expect([byteLength("ab"), byteLength("ü€😀")]).toEqual([2, 9]);
    expect([cut("aüü", 4), cut("😀", 3)]).toEqual(["aü", ""]);
    const bytes = Uint8Array.from(range(20_000).map((n) => n % 256));
    expect(fromBase64(toBase64(bytes))).toEqual(bytes);
  });

  test("JSON, or an error that says so", () => {
    const circle: unknown[] = [];
    circle.push(circle);
    for (const bad of [circle, Symbol("s"), 1n, undefined]) {
      expect(() => toJson(bad)).toThrow("no JSON");
    }
    expect(toJson({ toJSON: () => NaN })).toBe("null");
  });
});

test("a publication is the fields of its message", () => {
  const make = (body: unknown, options: object = {}) =>
    new Publication(body, options, new Slip()).text;
  expect(make("ü")).toBe('"body":"ü","seq":');
  expect(make(undefined)).toBe('"seq":');
  expect(make(null, { key: "k", delayMs: 5 })).toBe('"body":null,"key":"k","delay_ms":5,"seq":');
  expect(make(undefined, { data: new Uint8Array() })).toBe('"data":"","seq":');
  expect(() => make(1, { delay: 5 })).toThrow("no option delay");
  expect(() => make(1, { data: "text" })).toThrow("no bytes");
  expect(() => make(1, { priority: 1n })).toThrow("JSON");
});

test("a table has things by number, in their order", () => {
  const table = new Table<string>();
  for (const number of [7, 3, 2 ** 33, 5]) table.put(number, `n${number}`);
  expect(table.all().slice(0, 3)).toEqual(["n3", "n5", "n7"]);
  expect([table.drop(5), table.drop(5), table.find(5), table.count]).toEqual([
    "n5",
    undefined,
    undefined,
    3,
  ]);
});

test("leases are held by receipt", () => {
  const subscription = new Subscription({ from: "q", credit: 1 }, undefined);
  const lease = (receipt: string) =>
    new Lease(subscription, { id: "m", attempt: 1, published_at: 0, receipt });
  const [one, two, other] = [lease("a.b.1"), lease("a.b.2"), lease("c.1")];
  expect([one, two, other].map((each) => subscription.hold(each))).toEqual([true, true, true]);
  expect(subscription.hold(lease("a.b.1"))).toBe(false);
  subscription.release(one);
  subscription.release(one);
  expect(subscription.held()).toEqual([two, other]);
  expect(runs([other, two, one])).toEqual(["c.1", "a.b.1-2"]);
});
