/** The small parts of the page that need no browser. */
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { Audit, type Counts, judge } from "../../demo/audit.js";
import { KEYS, laneOf, laneOfKey, NO_KEY } from "../../demo/keys.js";
import { BOUNDS, readSettings } from "../../demo/settings.js";

const DOCS = new URL("../../../docs/demo.md", import.meta.url);

const counts = (published: number, sending = 0, acked = 0, acking = 0): Counts => ({
  published,
  sending,
  acked,
  acking,
});

test.each([
  ["exact", counts(10, 0, 4), 6, counts(10, 0, 4)],
  ["agrees", counts(10, 5), 12, counts(10, 5)],
  ["agrees", counts(10, 0, 4, 2), 5, counts(10, 0, 5, 1)],
  ["missing", counts(10), 9, counts(10)],
  ["missing", counts(10, 0, 4), 4, counts(10, 0, 5)],
  ["more", counts(10), 11, counts(10)],
])("%s", (verdict, before, stored, after) => {
  expect(judge(before, stored, after)).toBe(verdict);
});

test("a verdict that is not fine counts when it comes three times", () => {
  const audit = new Audit();
  for (const found of ["exact", "missing", "missing", "exact", "missing", "missing"] as const) {
    audit.add(found);
    expect([audit.verdict, audit.alarms]).toEqual(["exact", 0]);
  }
  audit.add("missing");
  expect([audit.verdict, audit.alarms]).toEqual(["missing", 1]);
  audit.add("agrees");
  expect([audit.verdict, audit.alarms, audit.rounds]).toEqual(["agrees", 1, 8]);
});

test("every third message has no key, the others take turns", () => {
  const lanes = Array.from({ length: 18 }, (_, number) => laneOf(number));
  const keyed = lanes.filter((lane) => lane !== NO_KEY);
  expect(lanes.length - keyed.length).toBe(6);
  expect(keyed).toEqual([...KEYS, ...KEYS]);
  expect([laneOfKey("acme"), laneOfKey("other"), laneOfKey(null)]).toEqual([
    "acme",
    NO_KEY,
    NO_KEY,
  ]);
});

test("settings come from the address", () => {
  expect(readSettings("")).toMatchObject({ consumers: 4, credit: 4, attempts: 3 });
  expect(readSettings("?lease=1000&consumers=6")).toMatchObject({ lease: 1000, consumers: 6 });
});

test.each([
  ["?lease=999", "lease is 999: an integer from 1000 to 60000"],
  ["?lease=60001", "an integer from 1000 to 60000"],
  ["?credit=x", "credit is x"],
  ["?credit=1.5", "credit is 1.5"],
  ["?speed=1", "there is no setting speed"],
])("%s is refused", (search, message) => {
  expect(() => readSettings(search)).toThrow(message);
});

test("the docs know them all", () => {
  const rows = readFileSync(DOCS, "utf8").matchAll(/^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \|/gm);
  const found = [...rows].map(([, name, ...bounds]) => [name, bounds.map(Number)]);
  expect(found).toEqual(Object.entries(BOUNDS));
});
