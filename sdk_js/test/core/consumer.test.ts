/** Consuming: credit of requests, leases over their time, refusals. */
import { expect, test } from "vitest";
import { Phase } from "../../src/core/lease.js";
import { ACK, summary } from "../../src/core/settler.js";
import { range } from "../live/help.js";
import { Rig, Slip } from "./rig.js";

function message(number: number, prefix = "P") {
  return {
    id: `m-${number}`, receipt: `${prefix}.${number}`, body: number - 1, attempt: 1, fence: 1,
    published_at: 0, lease_ms: 30_000,
  }; // prettier-ignore
}

function subscribed(rig: Rig, count: number) {
  const subscription = rig.subscribe();
  const [{ id }] = rig.frames();
  const messages = range(count).map((n) => message(n + 1));
  rig.hear({ op: "subscribed", id, sub: 1 }, { op: "deliver", sub: 1, messages });
  return subscription;
}

test("a lease is extended for an hour at most", () => {
  const rig = Rig.open();
  const subscription = subscribed(rig, 1);
  const lease = rig.core.take(subscription, rig.now)!;
  rig.core.consumer.clocks.keep(lease, rig.now);
  let extensions = 0;
  for (let minute = 0; minute < 180 && !lease.lost; minute += 1) {
    for (const _ of range(6)) {
      rig.pass(10_000);
      rig.hear({ op: "beat", now: 0 });
      for (const frame of rig.frames()) {
        if (frame.op !== "extend") continue;
        extensions += 1;
        rig.hear({ op: "done", id: frame.id });
      }
    }
  }
  expect(lease.lost).toBe(true);
  expect(extensions).toBeGreaterThan(150);
  expect(rig.now).toBeGreaterThanOrEqual(3_600_000);
  expect(rig.now).toBeLessThan(3_720_000);
});

test("settles wait when the server's window is full", () => {
  const rig = Rig.open({}, { unanswered: 2 });
  const subscription = subscribed(rig, 3);
  const leases = range(3).map(() => rig.core.take(subscription, 0)!);
  rig.frames();
  const slips = leases.map((lease, n) => {
    const slip = new Slip();
    rig.core.consumer.settler.settle(lease, { op: "nack", delay_ms: n }, slip);
    return slip;
  });
  const [first, second, ...none] = rig.frames();
  expect(none).toEqual([]);
  rig.hear({ op: "done", id: first.id });
  const [third] = rig.frames();
  expect(third).toMatchObject({ op: "nack", receipts: ["P.3"], delay_ms: 2 });
  rig.hear({ op: "done", id: second.id }, { op: "done", id: third.id });
  expect(slips.map(({ value }) => value)).toEqual(["done", "done", "done"]);
});

test("an ack that is refused for now is repeated, one that is refused for good is the caller's", () => {
  const rig = Rig.open();
  const subscription = subscribed(rig, 1);
  const lease = rig.core.take(subscription, 0)!;
  rig.frames();
  const slip = new Slip();
  rig.core.consumer.settler.settle(lease, ACK, slip);
  const [first] = rig.frames();
  rig.hear({ op: "error", id: first.id, code: "unavailable", message: "m", retry_ms: 50 });
  expect(rig.frames()).toEqual([]);
  rig.pass(50);
  const [second] = rig.frames();
  expect(second).toMatchObject({ op: "ack", receipts: ["P.1"] });
  rig.hear({ op: "error", id: second.id, code: "forbidden", message: "m" });
  expect([slip.value, lease.phase]).toEqual(["forbidden", Phase.Started]);
});

test("an ack that may have counted is not told as a lost lease", () => {
  const rig = Rig.open();
  const lease = rig.core.take(subscribed(rig, 1), 0)!;
  rig.frames();
  const slip = new Slip();
  rig.core.consumer.settler.settle(lease, ACK, slip);
  const [first] = rig.frames();
  rig.hear({ op: "error", id: first.id, code: "unavailable", message: "m", retry_ms: 50 });
  rig.pass(50);
  const [second] = rig.frames();
  // The owner died before it answered; the next one knows nothing of the ack that was stored.
  rig.hear({ op: "done", id: second.id, lease_lost: ["P.1"] });
  expect([slip.value, lease.lost]).toEqual(["connection_lost", true]);
});

test("with ack none a slow reader drops the newest, counted", () => {
  const rig = Rig.open({ buffered: 2 });
  const subscription = rig.subscribe({ ack: "none" });
  const [{ id }] = rig.frames();
  const messages = range(3).map((n) => ({ id: `m-${n}`, body: n, attempt: 1, published_at: 0 }));
  rig.hear({ op: "subscribed", id, sub: 1 }, { op: "deliver", sub: 1, messages, dropped: 4 });
  expect(subscription.dropped).toBe(5);
  expect(rig.core.take(subscription, 0)!.message.body).toBe(0);
});

test("a frame that makes no sense is ignored, what is no frame cuts", () => {
  const rig = Rig.open();
  rig.hear({ op: "brand_new" }, { op: "deliver", sub: 1 }, { nothing: 1 });
  expect(rig.core.state).toBe("open");
  rig.core.received(rig.link, [undefined], rig.now);
  expect(rig.core.state).toBe("connecting");
});

test("a nudge ends the wait for the next attempt, unless the server named its time", () => {
  const rig = Rig.open();
  rig.lose();
  rig.core.nudge(rig.now);
  expect(rig.link).toBe(2);
  rig.welcome();
  rig.hear({ op: "goaway", reason: "drain", reconnect_ms: 5000 });
  rig.frames();
  rig.core.nudge(rig.now + 100);
  expect([rig.link, rig.core.state]).toEqual([2, "connecting"]);
});

test("errors are told in few bytes", () => {
  const { core } = Rig.open();
  expect(summary("ü".repeat(2000), core)).toBe("ü".repeat(512));
  expect(summary(new TypeError("no"), core)).toBe("TypeError: no");
  expect([summary(undefined, core), summary(null, core)]).toEqual([undefined, undefined]);
});

test("who closes twice hears of it twice", () => {
  const rig = Rig.open();
  rig.publish(1);
  const [publish] = rig.frames();
  const slips = [new Slip(), new Slip()];
  for (const slip of slips) rig.core.close(rig.now, 1000, slip);
  expect(slips.map(({ value }) => value)).toEqual(["waiting", "waiting"]);
  rig.hear({ op: "published", id: publish.id, ids: ["m-1"] });
  rig.frames();
  expect(slips.map(({ value }) => value)).toEqual(["done", "done"]);
});

test.each([
  { prefix: "P", atLeast: 1000 },
  { prefix: "P".repeat(100), atLeast: 400 },
])("a resume lists no more than a hello may have", ({ prefix, atLeast }) => {
  const rig = Rig.open();
  rig.subscribe({ credit: 10_000 });
  const [{ id }] = rig.frames();
  const messages = range(3000).map((n) => message(2 * n + 1, prefix));
  rig.hear({ op: "subscribed", id, sub: 1 }, { op: "deliver", sub: 1, messages });
  rig.lose();
  rig.core.nudge(rig.now);
  rig.core.connected(rig.link, undefined);
  const [{ op, resume }] = rig.frames();
  expect([op, resume.session]).toEqual(["hello", "s"]);
  expect(resume.held["1"].length).toBeGreaterThan(atLeast);
  expect(resume.held["1"].length).toBeLessThanOrEqual(2000);
  expect(JSON.stringify(resume.held).length).toBeLessThan(50_000);
});
