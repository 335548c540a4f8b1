/** Publishing: windows, room, repeats, time. */
import { describe, expect, test } from "vitest";
import { Publication } from "../../src/core/publication.js";
import { range } from "../live/help.js";
import { Rig, Slip } from "./rig.js";

const seqs = (frame: any): number[] => frame.messages.map(({ seq }: any) => seq);

test("a queue's unanswered messages stay within the producer's window", () => {
  const rig = Rig.open({ producerWindow: 10 });
  for (const n of range(25)) rig.publish(n);
  const [first, ...none] = rig.frames();
  expect(none).toEqual([]);
  expect(seqs(first)).toEqual(range(10).map((n) => n + 1));
  rig.hear({ op: "published", id: first.id, ids: range(10).map((n) => `m-${n}`) });
  expect(seqs(rig.frames()[0])).toEqual(range(10).map((n) => n + 11));
});

test("the window is never more than a server remembers", () => {
  const rig = Rig.open({ producerWindow: 5000 });
  for (const n of range(2000)) rig.publish(n);
  expect(rig.frames().flatMap(seqs).at(-1)).toBe(1024);
});

test("bytes on their way are limited, but one frame always goes", () => {
  const rig = Rig.open(
    {},
    { inflight_bytes: 65_536, message_bytes: 100_000, frame_bytes: 300_000 },
  );
  const big = rig.publish("x".repeat(90_000));
  const [first] = rig.frames();
  const small = rig.publish("y");
  expect([first.messages.length, rig.frames()]).toEqual([1, []]);
  rig.hear({ op: "published", id: first.id, ids: ["m-1"] });
  expect(seqs(rig.frames()[0])).toEqual([2]);
  expect([big.value, small.value]).toEqual(["m-1", "waiting"]);
});

test("past what may wait, callers queue up and are let in one by one", () => {
  const rig = new Rig({ waitingMessages: 2 });
  rig.core.start(0);
  const { producer } = rig.core;
  const entered: number[] = [];
  const failed: number[] = [];
  const entrants = range(5).map((n) => ({
    reject: () => failed.push(n),
    enter: () => {
      entered.push(n);
      rig.publish(n);
    },
  }));
  for (const entrant of entrants) producer.admit(entrant);
  expect(entered).toEqual([0, 1]);
  producer.withdraw(entrants[2]!, "q", undefined);
  rig.welcome();
  rig.frames();
  expect(entered).toEqual([0, 1, 3, 4]);
  rig.core.close(0, 0);
  rig.pass(0);
  expect(failed).toEqual([]);
});

test("who waits for room hears of the end", () => {
  const rig = new Rig({ waitingMessages: 1 });
  rig.core.start(0);
  rig.publish(1);
  const slip = new Slip();
  rig.core.producer.admit({
    reject: (error) => slip.reject(error),
    enter: () => expect.fail("there is no room"),
  });
  rig.core.close(0, 1000);
  rig.pass(1000);
  expect(slip.value).toBe("connection_lost");
});

test("a message that was never sent can be withdrawn, and leaves no gap", () => {
  const rig = new Rig();
  rig.core.start(0);
  const gone = new Publication(1, {}, new Slip());
  rig.core.producer.publish("q", gone, 0);
  const kept = rig.publish(2);
  rig.core.producer.withdraw({ reject() {}, enter() {} }, "q", gone);
  rig.welcome();
  expect(kept.value).toBe("waiting");
  rig.lose();
  rig.pass(100);
  rig.core.connected(rig.link, undefined);
  rig.hear({
    op: "welcome", session: "t", node: "", server: "", resumed: false, now: 0, resume_ms: 1,
    heartbeat_ms: 25_000, limits: {},
  }); // prettier-ignore
  const repeated = rig.frames().find(({ op }) => op === "publish");
  expect(repeated.messages).toEqual([{ body: 2, seq: 1 }]);
});

test("a duplicate is the caller's only when it can't be ours", () => {
  const rig = Rig.open();
  const results: unknown[] = [];
  const ticket = { resolve: (value: unknown) => results.push(value), reject() {} };
  for (const options of [{}, { dedup: "d" }]) {
    rig.core.producer.publish("q", new Publication(1, options, ticket), 0);
  }
  const [frame] = rig.frames();
  rig.hear({ op: "published", id: frame.id, ids: ["m-1", "m-2"], duplicates: [0, 1] });
  expect(results).toMatchObject([{ duplicate: false }, { duplicate: true }]);
});

test("a duplicate without an id is stored", () => {
  const rig = Rig.open();
  const results: unknown[] = [];
  const ticket = { resolve: (value: unknown) => results.push(value), reject() {} };
  rig.core.producer.publish("q", new Publication(1, {}, ticket), 0);
  const [frame] = rig.frames();
  rig.hear({ op: "published", id: frame.id, ids: [null], duplicates: [0] });
  expect(results).toEqual([{ id: null, duplicate: true, error: null }]);
  expect(rig.core.producer.isIdle()).toBe(true);
});

test("a message that fits no frame fails, and nothing else with it", () => {
  const rig = new Rig();
  rig.core.start(0);
  const [short, long] = [rig.publish("x"), rig.publish("x".repeat(70_000))];
  rig.welcome({ frame_bytes: 65_536 });
  expect(seqs(rig.frames()[0])).toEqual([1]);
  expect([short.value, long.value]).toEqual(["waiting", "too_large"]);
});

describe("a frame that is refused", () => {
  const refuse = (rig: Rig, { id }: any, code: string) =>
    rig.hear({ op: "error", id, code, message: "m" });

  test.each(["bad_request", "too_large", "forbidden"])("%s: each goes again alone", (code) => {
    const rig = Rig.open();
    const slips = range(3).map((n) => rig.publish(n));
    const [all] = rig.frames();
    refuse(rig, all, code);
    expect(slips.map(({ value }) => value)).toEqual(["waiting", "waiting", "waiting"]);
    const later = rig.publish(3);
    const [first, second, third, fourth, ...none] = rig.frames();
    expect([first, second, third, fourth].map(seqs)).toEqual([[1], [2], [3], [4]]);
    expect(none).toEqual([]);
    refuse(rig, second, code);
    rig.hear(
      { op: "published", id: first.id, ids: ["m-1"] },
      { op: "published", id: third.id, ids: ["m-3"] },
      { op: "published", id: fourth.id, ids: ["m-4"] },
    );
    expect([...slips, later].map(({ value }) => value)).toEqual(["m-1", code, "m-3", "m-4"]);
    expect(rig.frames()).toEqual([]);
  });

  test("a cut in between changes nothing", () => {
    const rig = Rig.open();
    const slips = range(2).map((n) => rig.publish(n));
    refuse(rig, rig.frames()[0], "bad_request");
    rig.frames();
    rig.lose();
    rig.pass(100);
    rig.welcome();
    const frames = rig.frames();
    expect(frames.map(seqs)).toEqual([[1], [2]]);
    refuse(rig, frames[0], "bad_request");
    rig.hear({ op: "published", id: frames[1].id, ids: ["m-2"] });
    expect(slips.map(({ value }) => value)).toEqual(["bad_request", "m-2"]);
  });

  test("for another reason it fails whole", () => {
    const rig = Rig.open();
    const slips = range(2).map((n) => rig.publish(n));
    refuse(rig, rig.frames()[0], "not_found");
    expect(slips.map(({ value }) => value)).toEqual(["not_found", "not_found"]);
  });
});

test("an answer of the wrong length is repeated", () => {
  const rig = Rig.open();
  const slip = rig.publish(1);
  const [frame] = rig.frames();
  rig.hear({ op: "published", id: frame.id, ids: [] });
  expect(slip.value).toBe("waiting");
  rig.pass(1000);
  expect(seqs(rig.frames()[0])).toEqual([1]);
});

test("what waits too long fails: sent or not", () => {
  const rig = Rig.open({ publishMs: 5000, producerWindow: 1 });
  const [sent, waiting] = [rig.publish(1), rig.publish(2)];
  rig.frames();
  rig.pass(5000);
  expect([sent.value, waiting.value]).toEqual(["connection_lost", "unavailable"]);
});
