/** The bundle in a real Chromium, against a real server. */
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/index.js";
import { Proxy } from "../live/proxy.js";
import { range, sleep } from "../live/help.js";
import { Server } from "../live/server.js";
import { Site } from "./site.js";

const site = new Site();
const server = new Server();

beforeAll(async () => {
  await Promise.all([site.start(), server.start()]);
});
afterEach(() => expect(site.faults).toEqual([]));
afterAll(async () => {
  await site.close();
  await server.close();
});

const state = () => globalThis.client.state;
const gotten = () => globalThis.got.length;

/** Consumes in a tab; what comes is in `got`. */
function consume(queue: string): void {
  globalThis.got = [];
  void client.consume<number>(queue, async ({ body }) => {
    got.push(body);
    await new Promise((resolve) => setTimeout(resolve, 1));
  });
}

test.each(["ws", "poll"] as const)(
  "%s: publish, subscribe, ack, nack, extend",
  async (transport) => {
    const page = await site.connect(server.url, { transport });
    const seen = await page.evaluate(async (queue) => {
      const id = await client.publish(queue, { order: 17, name: "ünï" }, { key: "k" });
      await client.publish(queue, undefined, { data: Uint8Array.of(0, 255) });
      const subscription = await client.subscribe(queue);
      const { value: first } = await subscription.next();
      await first!.nack("not yet", { delayMs: 0 });
      const { value: second } = await subscription.next();
      const { value: third } = await subscription.next();
      const messages = [second!, third!].sort((a, b) => b.attempt - a.attempt);
      await messages[0]!.extend(60_000);
      for (const message of messages) await message.ack();
      const { acked } = await client.queues.stats(queue);
      const [again, bytes] = messages;
      const faults = await client.publish("no name", 1).catch((error) => [error.code, error.name]);
      return [
        again!.id === id,
        again!.body,
        again!.attempt,
        again!.key,
        [...bytes!.data!],
        acked,
        faults,
      ];
    }, `chromium-${transport}`);
    expect(seen).toEqual([
    true, { order: 17, name: "ünï" }, 2, "k", [0, 255], 2, ["bad_request", "PushlaneError"],
  ]); // prettier-ignore
    expect(await page.evaluate(state)).toBe(transport === "ws" ? "open" : "polling");
    await page.evaluate(() => client.close());
  },
);

test("two tabs share a queue, and no message comes to both", async () => {
  const tabs = [await site.connect(server.url), await site.connect(server.url)];
  for (const tab of tabs) await tab.evaluate(consume, "shared");
  const producer = await connect(server.url);
  onTestFinished(() => producer.close());
  await producer.publishMany("shared", range(500));
  const all = async () => (await Promise.all(tabs.map((tab) => tab.evaluate(() => got)))).flat();
  while ((await all()).length < 500) await sleep(20);
  await sleep(200);
  const counts = await Promise.all(tabs.map((tab) => tab.evaluate(gotten)));
  expect(Math.min(...counts)).toBeGreaterThan(0);
  expect((await all()).sort((a, b) => a - b)).toEqual(range(500));
});

test("the server is killed and restarted: the page goes on", async () => {
  const own = await new Server().start();
  onTestFinished(() => own.close());
  const page = await site.connect(own.url);
  await page.evaluate(consume, "q");
  const publishing = page.evaluate(async () => {
    const ids = [];
    for (let n = 0; n < 200; n++) {
      ids.push(client.publish("q", n));
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    return (await Promise.all(ids)).length;
  });
  await sleep(300);
  await own.stop("SIGKILL");
  await sleep(300);
  await own.start();
  expect(await publishing).toBe(200);
  await page.waitForFunction(() => new Set(got).size === 200, null, { timeout: 50_000 });
  expect(await page.evaluate(state)).toBe("open");
});

test("a network that comes back is used at once", async () => {
  const page = await site.connect(server.url);
  const context = page.context();
  const proxy = await new Proxy(server.port, {}).start();
  onTestFinished(() => proxy.close());
  await page.evaluate(async (url) => {
    client = await pushlane.connect(url, {
      transport: "ws",
      settings: { backoffBaseMs: 600_000, backoffMaxMs: 600_000 },
    });
  }, proxy.url);
  await context.setOffline(true);
  proxy.cut();
  await page.waitForFunction(() => client.state === "connecting");
  await context.setOffline(false); // "online": no need to wait ten minutes
  await page.waitForFunction(() => client.state === "open", null, { timeout: 30_000 });
});

test("where upgrades are refused it polls", async () => {
  const proxy = await new Proxy(server.port, { refusesUpgrades: true }).start();
  onTestFinished(() => proxy.close());
  const page = await site.connect(proxy.url);
  expect(await page.evaluate(state)).toBe("polling");
  expect(proxy.upgrades).toBe(3);
  await page.evaluate(consume, "refused");
  await page.evaluate(() => client.publish("refused", 1));
  await page.waitForFunction(() => got.length === 1);
});
