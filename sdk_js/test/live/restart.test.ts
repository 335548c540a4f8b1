/** A server that is killed and comes back: nothing that was confirmed is lost. */
import { expect, onTestFinished, test } from "vitest";
import { connect, type ConnectOptions } from "../../src/index.js";
import { eventually, range, receive, sleep } from "./help.js";
import { judge, load } from "./history.js";
import { Server } from "./server.js";

const TOTAL = 10_000;

async function fresh(options: ConnectOptions = {}) {
  const server = await new Server().start();
  const client = await connect(server.url, options);
  onTestFinished(async () => {
    await client.close({ timeoutMs: 1000 });
    await server.close();
  });
  return { server, client };
}

test.each(["ws", "poll"] as const)("%s: killed and restarted", async (transport) => {
  const { server, client } = await fresh({ transport });
  const states: string[] = [];
  client.addEventListener("state", ({ detail }) => states.push(detail.state));
  const ids = await Promise.all(range(100).map((n) => client.publish("q", n)));
  const subscription = await client.subscribe<number>("q");
  const held = await receive(subscription, 10);
  await Promise.all(held.slice(0, 5).map((message) => message.ack()));
  await server.stop("SIGKILL");
  const late = Promise.all(range(50).map((n) => client.publish("q", 100 + n)));
  await sleep(300);
  await server.start();
  expect(new Set([...ids, ...(await late)]).size).toBe(150);
  const got = new Set(held.slice(0, 5).map(({ body }) => body));
  while (got.size < 150) {
    const [message] = await receive(subscription, 1, 45_000);
    expect(got).not.toContain(message!.body);
    await message!.ack();
    got.add(message!.body);
  }
  expect([...got].sort((a, b) => (a as number) - (b as number))).toEqual(range(150));
  expect(states).toContain("connecting");
  expect(client.state).toBe(transport === "ws" ? "open" : "polling");
});

test("a connection that is cut is resumed, and leases are kept", async () => {
  const { server, client } = await fresh();
  const { Proxy } = await import("./proxy.js");
  const proxy = await new Proxy(server.port, {}).start();
  onTestFinished(() => proxy.close());
  const consumer = await connect(proxy.url, { transport: "ws" });
  onTestFinished(() => consumer.close({ timeoutMs: 1000 }));
  await client.publishMany("q", range(5));
  const subscription = await consumer.subscribe("q");
  const held = await receive(subscription, 3);
  const states: string[] = []; // heard, not looked for: it may be back before one looks
  consumer.addEventListener("state", ({ detail }) => states.push(detail.state));
  proxy.cut();
  await eventually(() => states.includes("connecting") && consumer.state === "open");
  await Promise.all(held.map((message) => message.ack()));
  for (const message of await receive(subscription, 2)) await message.ack();
  expect(held.some(({ lost }) => lost)).toBe(false);
  expect(await client.queues.stats("q")).toMatchObject({ acked: 5, ready: 0, leased: 0 });
});

test("10,000 messages with the server killed three times: the checker finds nothing", async () => {
  const { server, client } = await fresh({ transport: "ws" });
  const work = load(client, "q", TOTAL);
  for (const share of [0.1, 0.4, 0.7]) {
    await eventually(() => work.confirmed() >= share * TOTAL);
    await server.stop("SIGKILL");
    work.crashed();
    await server.start();
  }
  await work.published;
  const seen = judge(await work.finish());
  expect(seen).toMatchObject({ publish: TOTAL, published: TOTAL, crash: 3 });
  expect(seen["grant"]).toBeGreaterThanOrEqual(TOTAL);
}, 300_000);
