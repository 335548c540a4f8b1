/** A session over HTTP, without HTTP: frames in, requests out. */
import { beforeEach, describe, expect, test } from "vitest";
import { Poll } from "../../src/core/poll.js";
import { type MessageOptions, Publication } from "../../src/core/publication.js";
import { DEFAULTS } from "../../src/core/settings.js";
import { ConnectionLost } from "../../src/wire/errors.js";
import { Slip } from "./rig.js";

let poll: Poll;
let room: number | null;

function asked(): any[] {
  poll.flush(0);
  return poll.asks.splice(0).map(({ number, call: { method, target, body }, token }) => ({
    number,
    call: `${method} ${target}`,
    body: body && JSON.parse(body),
    token,
  }));
}
const answer = (number: number, value: unknown, status = 200, now = 0) =>
  poll.answered(number, { status, value }, now);
const told = () => poll.frames.splice(0);

function publish(id: number, seq: number, options: MessageOptions = {}): void {
  const message = new Publication(seq, options, new Slip());
  message.seq = seq;
  poll.send({ op: "publish", id, to: "q", messages: [message] });
}

beforeEach(() => {
  room = 5;
  poll = new Poll(DEFAULTS, () => 0.5, () => room); // prettier-ignore
  poll.send({ op: "hello", token: "t", producer: "p" });
  const [hello] = asked();
  expect(hello).toMatchObject({ call: "GET /v1/limits", token: "t" });
  answer(hello.number, { limits: { batch: 2 } });
  expect(told()).toMatchObject([{ op: "welcome", session: "poll", limits: { batch: 2 } }]);
});

describe("publishes", () => {
  test("one request at a time, what gathers goes together, numbers are dedup ids", () => {
    publish(1, 1);
    const [first] = asked();
    expect(first).toMatchObject({
      call: "POST /v1/queues/q/messages",
      body: { messages: [{ body: 1, dedup: "p:1" }] },
    });
    publish(2, 2, { dedup: "mine" });
    publish(3, 3);
    publish(4, 4);
    expect(asked()).toEqual([]);
    answer(first.number, { ids: ["m-1"] });
    const [second] = asked();
    expect(second.body.messages).toEqual([
      { body: 2, dedup: "mine" },
      { body: 3, dedup: "p:3" },
    ]);
    answer(second.number, {
      ids: ["m-2", null],
      duplicates: [0],
      failed: [{ index: 1, code: "c" }],
    });
    expect(told().slice(1)).toMatchObject([
      { op: "published", id: 2, ids: ["m-2"], duplicates: [0], failed: [] },
      { op: "published", id: 3, ids: [null], failed: [{ index: 0, code: "c" }] },
    ]);
  });

  test("an error's details are told, and so is an error without", () => {
    publish(1, 1);
    const failed = [{ index: 0, code: "queue_full", message: "full" }];
    answer(asked()[0].number, { error: { code: "queue_full", message: "full" }, failed }, 507);
    expect(told()).toMatchObject([{ op: "published", id: 1, ids: [null], failed }]);
    publish(2, 2);
    answer(asked()[0].number, undefined, 502);
    expect(told()).toMatchObject([{ op: "error", id: 2, code: "unavailable" }]);
    publish(3, 3);
    answer(asked()[0].number, "a page to log in");
    expect(told()).toMatchObject([{ op: "error", id: 3, code: "internal" }]);
  });

  test("a topic has no path", () => {
    const message = new Publication(1, {}, new Slip());
    poll.send({ op: "publish", id: 1, to: "topic:t", messages: [message] });
    expect(asked()).toEqual([]);
    expect(told()).toMatchObject([{ op: "error", id: 1, code: "bad_request" }]);
    expect(poll.isIdle).toBe(true);
  });
});

describe("a subscription", () => {
  function begin(more: object = {}) {
    poll.send({ op: "subscribe", id: 1, from: "q", credit: 9, ...more });
    const [first] = asked();
    expect(first).toMatchObject({ call: "POST /v1/queues/q/receive", body: { wait_ms: 0 } });
    answer(first.number, { messages: [] });
    expect(told()).toEqual([{ op: "subscribed", id: 1, sub: 1 }]);
  }
  const message = { id: "m", receipt: "P.1", fence: 1, attempt: 1, published_at: 0, lease_ms: 9 };

  test("asks for as much as there is room, and stops when there is none", () => {
    begin();
    const [second] = asked();
    expect(second.body).toMatchObject({ max: 2, wait_ms: 20_000 });
    room = 0;
    asked();
    expect(poll.drops).toEqual([second.number]);
    answer(second.number, { messages: [message] });
    expect(told()).toEqual([]);
    room = 1;
    const [third] = asked();
    answer(third.number, { messages: [message] });
    expect(told()).toEqual([{ op: "deliver", sub: 1, messages: [message] }]);
  });

  test("with ack none it acks first", () => {
    begin({ ack: "none" });
    answer(asked()[0].number, { messages: [message, { ...message, receipt: "P.2" }] });
    const [ack] = asked();
    expect(ack).toMatchObject({
      call: "POST /v1/queues/q/ack",
      body: { receipts: ["P.1", "P.2"] },
    });
    answer(ack.number, { lease_lost: ["P.2"] });
    expect(told()).toMatchObject([
      { op: "deliver", messages: [{ id: "m", receipt: null, fence: null, lease_ms: null }] },
    ]);
  });

  test("fails for now and asks again, or for good and ends", () => {
    begin();
    answer(asked()[0].number, { error: { code: "unavailable", message: "m", retry_ms: 70 } }, 503);
    expect([asked(), poll.wakeAt(0)]).toEqual([[], 70]);
    poll.flush(70);
    answer(poll.asks.splice(0)[0]!.number, { error: { code: "not_found", message: "m" } }, 404, 70);
    expect(told()).toEqual([{ op: "ended", sub: 1, code: "not_found", message: "m" }]);
  });

  test("a receive that was cut after a while is asked again, one that broke at once breaks all", () => {
    begin();
    poll.failed(asked()[0].number, new ConnectionLost("cut"), 10_000);
    expect([poll.fault, poll.wakeAt(10_000)]).toEqual([null, 10_050]);
    poll.flush(10_050);
    poll.failed(poll.asks.splice(0)[0]!.number, new ConnectionLost("broke"), 10_060);
    expect(poll.fault).toMatchObject({ message: "broke" });
  });

  test("settles of one kind go together, in order", () => {
    begin();
    asked();
    poll.send({ op: "ack", sub: 1, receipts: ["P.1"], id: 2 });
    const [first] = asked();
    poll.send({ op: "ack", sub: 1, receipts: ["P.2"], id: 3 });
    poll.send({ op: "ack", sub: 1, receipts: ["P.3-4"], id: 4 });
    poll.send({ op: "nack", sub: 1, receipts: ["P.5"], delay_ms: 0, id: 5 });
    answer(first.number, {});
    expect(told()).toMatchObject([{ op: "done", id: 2 }]);
    const [second] = asked();
    expect(second).toMatchObject({
      call: "POST /v1/queues/q/ack",
      body: { receipts: ["P.2", "P.3-4"] },
    });
    answer(second.number, { lease_lost: ["P.3"] });
    expect(told()).toMatchObject([{ id: 3 }, { id: 4, lease_lost: ["P.3"] }]);
    const [third] = asked();
    expect(third).toMatchObject({ call: "POST /v1/queues/q/nack", body: { delay_ms: 0 } });
  });

  test("a receipt of a forgotten subscription is lost", () => {
    poll.send({ op: "ack", sub: 9, receipts: ["P.1"], id: 2 });
    expect(told()).toEqual([{ op: "done", id: 2, lease_lost: ["P.1"] }]);
  });
});

test("a token that is no longer accepted breaks the link, so that the next has a new one", () => {
  publish(1, 1);
  answer(asked()[0].number, { error: { code: "unauthorized", message: "m" } }, 401);
  expect(poll.fault).toBeInstanceOf(ConnectionLost);
  poll.send({ op: "hello", token: "u", producer: "p", resume: { session: "poll" } });
  const [hello] = asked();
  expect(hello).toMatchObject({ call: "GET /v1/limits", token: "u" });
  expect(poll.fault).toBe(null);
  answer(hello.number, { limits: {} });
  expect(told()).toMatchObject([{ op: "welcome", resumed: true }]);
});

test("something else than a server is not taken for one", () => {
  poll.send({ op: "hello" });
  answer(poll.asks.splice(0)[0]!.number, undefined);
  expect(told()).toMatchObject([{ op: "error", code: "unavailable" }]);
});
