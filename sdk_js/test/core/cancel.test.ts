/** Aborted at any moment: no started message stays in hand, and nothing waits for nobody. */
import { describe, expect, test, vi } from "vitest";
import { Client } from "../../src/client.js";
import type { Driver } from "../../src/driver.js";
import type { Message } from "../../src/message.js";
import type { Queues } from "../../src/queues.js";
import { Rig } from "./rig.js";

/** A client over a rig: a turn comes when the test says so. */
function make(rig = Rig.open()) {
  const hungry = new Set<() => void>();
  function run(): void {
    for (const take of hungry) {
      hungry.delete(take);
      take();
    }
  }
  const driver = {
    core: rig.core,
    hungry,
    now: () => rig.now,
    soon() {},
    run,
    token() {},
    gone() {},
  };
  const client = new Client(driver as unknown as Driver, {} as Queues);
  /** One turn; the frames that leave. */
  const turn = () => {
    run();
    return rig.frames();
  };
  const deliver = (...ids: number[]) =>
    rig.hear({
      op: "deliver",
      sub: 1,
      messages: ids.map((id) => ({
        id: `m${id}`, receipt: `r.${id}`, body: id, attempt: 1, fence: id, published_at: 1,
        lease_ms: 30_000,
      })),
    }); // prettier-ignore
  return { rig, client, turn, deliver };
}

function subscribed(rig: Rig, turn: () => any[]): void {
  const { id } = turn().find(({ op }) => op === "subscribe");
  rig.hear({ op: "subscribed", id, sub: 1 });
}

const ticks = async (count = 5) => {
  for (let n = 0; n < count; n++) await Promise.resolve();
};

describe("consume", () => {
  test("a handler that was stopped before it began is not called, and gives back", async () => {
    const { rig, client, turn, deliver } = make();
    const stop = new AbortController();
    const handler = vi.fn();
    const consuming = client.consume("q", handler, { signal: stop.signal });
    subscribed(rig, turn);
    deliver(1, 2);
    turn(); // taken: their handlers are called after this turn
    stop.abort();
    await ticks();
    expect(handler).not.toHaveBeenCalled();
    const nack = turn().find(({ op }) => op === "nack");
    expect(nack).toMatchObject({ receipts: ["r.1-2"], delay_ms: 0 });
    expect(rig.core.consumer.isIdle()).toBe(false);
    rig.hear({ op: "done", id: nack.id });
    expect(rig.core.consumer.isIdle()).toBe(true);
    rig.hear({ op: "ended", sub: 1, code: "x", message: "" });
    await consuming;
  });

  test("nor is one whose lease was lost before it began, and its place is free", async () => {
    const { rig, client, turn, deliver } = make();
    const seen: number[] = [];
    const handler = ({ body }: Message) => void seen.push(body as number);
    void client.consume("q", handler, { concurrency: 1 });
    subscribed(rig, turn);
    deliver(1, 2);
    turn();
    rig.hear({ op: "lease_lost", sub: 1, receipts: ["r.1"] });
    await ticks();
    turn();
    await ticks();
    expect(seen).toEqual([2]);
  });
});

test("a subscribe that failed listens to its signal no longer", async () => {
  const { client, rig } = make();
  rig.core.close(0, 0);
  rig.core.tick(0);
  const stop = new AbortController();
  const lost = vi.fn();
  process.on("unhandledRejection", lost);
  await expect(client.subscribe("q", { signal: stop.signal })).rejects.toThrow(/closed/);
  stop.abort();
  await new Promise((resolve) => setTimeout(resolve, 10));
  process.off("unhandledRejection", lost);
  expect(lost).not.toHaveBeenCalled();
});

test("many publishes end with their signal, and what was not sent is withdrawn", async () => {
  const { rig, client } = make(new Rig({ waitingMessages: 2 }));
  rig.core.start(0);
  const stop = new AbortController();
  const publishing = client.publishMany("q", [1, 2, 3, 4], { signal: stop.signal });
  await ticks(50);
  stop.abort();
  await expect(publishing).rejects.toThrow(/abort/i);
  rig.welcome();
  const bodies = rig.frames().flatMap(({ messages }) => messages.map(({ body }: any) => body));
  expect(bodies).toEqual([]);
});

test("what was sent before the signal may be stored", async () => {
  const { rig, client, turn } = make();
  const stop = new AbortController();
  const { signal } = stop;
  const publishing = [client.publish("q", 1, { signal }), client.publishMany("q", [2], { signal })];
  await ticks(50);
  const bodies = () =>
    turn().flatMap(({ messages }) => messages?.map(({ body }: any) => body) ?? []);
  expect(bodies()).toEqual([1, 2]);
  stop.abort();
  for (const one of publishing) await expect(one).rejects.toThrow(/abort/i);
  const after = client.publish("q", 3);
  expect(bodies()).toEqual([3]);
  rig.hear({ op: "published", id: 2, ids: ["m-3"] });
  await after;
});

test("a wait for the next message that ended leaves nothing behind", async () => {
  const { rig, client, turn } = make();
  const waiting = client.subscribe("q");
  subscribed(rig, turn);
  const subscription = await waiting;
  const stop = new AbortController();
  const next = subscription.next({ signal: stop.signal });
  stop.abort();
  await expect(next).rejects.toThrow(/abort/i);
  expect((subscription as any)._waiters.size).toBe(0);
});

test("a publish that is aborted after the client has closed", async () => {
  const { rig, client } = make();
  const stop = new AbortController();
  const publishing = client.publish("q", 1, { signal: stop.signal });
  rig.core.close(0, 0);
  rig.core.tick(0);
  stop.abort();
  await expect(publishing).rejects.toThrow(/closed/);
});
