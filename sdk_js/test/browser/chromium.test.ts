/** The bundle in a real Chromium, against a real server. */
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/index.js";
import { judge, type Load, load } from "../live/history.js";
import { Proxy } from "../live/proxy.js";
import { range, sleep } from "../live/help.js";
import { Server } from "../live/server.js";
import { Site } from "./site.js";

declare global {
  var work: Load;
}

const TOTAL = 10_000;
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
  const consumers = async () => {
    const answer = await fetch(`${server.url}/v1/queues/shared/consumers`);
    return ((await answer.json()) as { consumers?: unknown[] }).consumers?.length ?? 0;
  };
  while ((await consumers()) < 2) await sleep(20);
  await producer.publishMany("shared", range(500));
  const all = async () => (await Promise.all(tabs.map((tab) => tab.evaluate(() => got)))).flat();
  while ((await all()).length < 500) await sleep(20);
  await sleep(200);
  const counts = await Promise.all(tabs.map((tab) => tab.evaluate(gotten)));
  expect(Math.min(...counts)).toBeGreaterThan(0);
  expect((await all()).sort((a, b) => a - b)).toEqual(range(500));
});

test("1,000 messages with one key come in order", async () => {
  const page = await site.connect(server.url);
  await page.evaluate(consume, "ordered");
  await page.evaluate(async (count) => {
    const all = Array.from({ length: count }, (_, body) => new pushlane.Item({ body, key: "k" }));
    await client.publishMany("ordered", all);
  }, 1000);
  await page.waitForFunction(() => got.length >= 1000);
  expect(await page.evaluate(() => got)).toEqual(range(1000));
});

test("behind a proxy that cuts nothing is lost", async () => {
  const proxy = await new Proxy(server.port, { cutsAfterMs: 1000 }).start();
  onTestFinished(() => proxy.close());
  const page = await site.connect(proxy.url);
  await page.evaluate(consume, "cut");
  await page.evaluate(async () => {
    for (let n = 0; n < 60; n++) {
      await client.publish("cut", n);
      await new Promise((resolve) => setTimeout(resolve, 80));
    }
  });
  await page.waitForFunction(() => new Set(got).size === 60);
  await page.waitForFunction(() => client.state === "polling");
  expect(proxy.cuts).toBeGreaterThan(2);
});

test("tokens that run out are renewed", async () => {
  const own = await new Server().start();
  onTestFinished(() => own.close());
  const key = await own.makeKey();
  await own.stop("SIGTERM");
  own.allow(site.origin);
  await own.start();
  const page = await site.open();
  let asked = 0;
  await page.exposeFunction("freshToken", async () => {
    asked += 1;
    const answer = await fetch(`${own.url}/v1/tokens`, {
      method: "POST",
      headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
      body: JSON.stringify({ rules: ["publish:q", "consume:q"], ttl_ms: 4000 }),
    });
    return ((await answer.json()) as { token: string }).token;
  });
  await page.evaluate(async (url) => {
    const token = (globalThis as unknown as { freshToken(): Promise<string> }).freshToken;
    client = await pushlane.connect(url, { token });
  }, own.url);
  await page.evaluate(consume, "q");
  let count = 0;
  while (asked < 3) {
    await page.evaluate((n) => client.publish("q", n), count++);
    await sleep(100);
  }
  await page.waitForFunction((all) => new Set(got).size === all, count);
});

test("a page whose origin is refused is told so, whatever it connects with", async () => {
  const own = await new Server().start();
  onTestFinished(() => own.close());
  await own.makeKey(); // from now on origins have to be listed
  const page = await site.open();
  for (const transport of ["auto", "ws", "poll"] as const) {
    const told = await page.evaluate(
      ([url, how]) =>
        pushlane.connect(url, { transport: how, token: "any" }).then(
          () => "connected",
          (error) => `${error.code}: ${error.message}`,
        ),
      [own.url, transport] as const,
    );
    expect(told).toMatch(/^forbidden: .*auth\.allowed_origins/);
  }
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
  await page.waitForFunction(() => new Set(got).size === 200, null, { timeout: 120_000 });
  expect(await page.evaluate(state)).toMatch(/open|polling/); // as fast as the machine lets it
});

test("10,000 messages with the server killed three times: the checker finds nothing", async () => {
  const own = await new Server().start();
  onTestFinished(() => own.close());
  const page = await site.connect(own.url);
  await page.evaluate(`globalThis.work = (${load})(client, "q", ${TOTAL})`);
  for (const share of [0.1, 0.4, 0.7]) {
    const least = share * TOTAL;
    await page.waitForFunction((count) => work.confirmed() >= count, least, { timeout: 120_000 });
    await own.stop("SIGKILL");
    await page.evaluate(() => work.crashed());
    await own.start();
  }
  await page.evaluate(() => work.published);
  const seen = judge(await page.evaluate(() => work.finish()));
  expect(seen).toMatchObject({ publish: TOTAL, published: TOTAL, crash: 3 });
  expect(seen["grant"]).toBeGreaterThanOrEqual(TOTAL);
}, 300_000);

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
  await page.waitForFunction(() => client.state === "open", null, { timeout: 120_000 });
});

test("where upgrades are refused it polls, until they are let through", async () => {
  const proxy = await new Proxy(server.port, { refusesUpgrades: true }).start();
  onTestFinished(() => proxy.close());
  const page = await site.connect(proxy.url, { settings: { probeBaseMs: 2000, probeMaxMs: 2000 } });
  expect(await page.evaluate(state)).toBe("polling");
  expect(proxy.upgrades).toBeGreaterThanOrEqual(3);
  await page.evaluate(consume, "refused");
  await page.evaluate(() => client.publish("refused", 1));
  await page.waitForFunction(() => got.length === 1);
  proxy.manners.refusesUpgrades = false;
  await page.waitForFunction(() => client.state === "open");
  await page.evaluate(() => client.publish("refused", 2));
  await page.waitForFunction(() => got.length === 2);
});
