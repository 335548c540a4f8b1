/** Publishing: windows, room, repeats, time. */
import { expect, test } from "vitest";
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
  rig.publish(1);
  rig.publish(2);
  expect(producer.hasRoom).toBe(false);
  const [third, fourth] = [new Slip(), new Slip()];
  producer.enter(third);
  producer.enter(fourth);
  rig.carryOut();
  expect(third.value).toBe("waiting");
  producer.leave(third);
  rig.welcome();
  expect([third.value, fourth.value]).toEqual(["waiting", "done"]);
  producer.entered();
  expect(producer.hasRoom).toBe(true);
});

test("a message that was never sent can be withdrawn, and leaves no gap", () => {
  const rig = new Rig();
  rig.core.start(0);
  const gone = new Publication(1, {}, new Slip());
  rig.core.publish("q", gone, 0);
  const kept = rig.publish(2);
  rig.core.producer.withdraw("q", gone);
  rig.welcome();
  expect(kept.value).toBe("waiting");
  rig.lose();
  rig.pass(100);
  rig.carryOut();
  rig.core.connected(rig.link, null, rig.now);
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
    rig.core.publish("q", new Publication(1, options, ticket), 0);
  }
  const [frame] = rig.frames();
  rig.hear({ op: "published", id: frame.id, ids: ["m-1", "m-2"], duplicates: [0, 1] });
  expect(results).toMatchObject([{ duplicate: false }, { duplicate: true }]);
});

test("another server's limits fail what waits and no longer fits", () => {
  const rig = new Rig();
  rig.core.start(0);
  const [short, long] = [rig.publish("x"), rig.publish("x", { key: "k".repeat(40) })];
  rig.welcome({ key_bytes: 16 });
  expect([short.value, long.value]).toEqual(["waiting", "bad_request"]);
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
