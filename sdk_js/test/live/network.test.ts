/** Networks that refuse, cut and forget; tokens that run out. */
import { expect, onTestFinished, test } from "vitest";
import { type Client, connect, type ConnectOptions } from "../../src/index.js";
import { eventually, range, sleep } from "./help.js";
import { type Manners, Proxy } from "./proxy.js";
import { Server } from "./server.js";

async function behind(manners: Manners, options: ConnectOptions = {}) {
  const server = await new Server().start();
  const proxy = await new Proxy(server.port, manners).start();
  const client = await connect(proxy.url, options);
  onTestFinished(async () => {
    await client.close({ timeoutMs: 1000 });
    proxy.close();
    await server.close();
  });
  return { server, proxy, client };
}

/** Publishes and consumes for a while; what came, and how often. */
async function flow(client: Client, count: number, paceMs: number): Promise<number[]> {
  const got: number[] = [];
  const stop = new AbortController();
  const consuming = client.consume<number>("q", ({ body }) => void got.push(body), {
    leaseMs: 3000, // an answer that is cut on its way keeps its messages for that long
    signal: stop.signal,
  });
  for (const n of range(count)) {
    await client.publish("q", n);
    await sleep(paceMs);
  }
  await eventually(() => new Set(got).size === count);
  stop.abort();
  await consuming;
  return got;
}

test("where upgrades are refused it polls", async () => {
  const { proxy, client } = await behind({ refusesUpgrades: true });
  expect(client.state).toBe("polling");
  expect(proxy.upgrades).toBe(1);
  expect((await flow(client, 30, 1)).length).toBe(30);
});

test("where a refusal can't be told from silence it polls, too", async () => {
  // As in a browser, whose WebSockets say nothing of the answer.
  const { WebSocket: Real } = await import("ws");
  class Mute extends Real {
    override on(event: any, listener: any): this {
      return event === "unexpected-response" ? this : super.on(event, listener);
    }
  }
  Object.assign(globalThis, { WebSocket: Mute });
  onTestFinished(() => void Reflect.deleteProperty(globalThis, "WebSocket"));
  const { proxy, client } = await behind({ refusesUpgrades: true });
  expect(client.state).toBe("polling");
  expect(proxy.upgrades).toBe(3);
  const nobody = connect("ws://127.0.0.1:9", { settings: { connectMs: 1500 } });
  await expect(nobody).rejects.toThrow(/no connection/);
});

const PROBING = { probeBaseMs: 50, probeMaxMs: 200, backoffBaseMs: 10 };

test("when upgrades are let through, it goes back to a WebSocket", async () => {
  const { proxy, client } = await behind({ refusesUpgrades: true }, { settings: PROBING });
  const states: string[] = [];
  client.addEventListener("state", ({ detail }) => states.push(detail.state));
  const got: number[] = [];
  const stop = new AbortController();
  const consuming = client.consume<number>("q", ({ body }) => void got.push(body), {
    signal: stop.signal,
  });
  let count = 0;
  while (client.state !== "open") {
    await Promise.all(range(10).map((n) => client.publish("q", count + n)));
    count += 10;
    if (proxy.upgrades > 2 && count >= 100) proxy.manners.refusesUpgrades = false;
  }
  await Promise.all(range(10).map((n) => client.publish("q", count + n)));
  await eventually(() => got.length >= count + 10);
  stop.abort();
  await consuming;
  expect(got.sort((a, b) => a - b)).toEqual(range(count + 10)); // none is lost, none came twice
  expect(await client.queues.stats("q")).toMatchObject({ acked: count + 10, ready: 0, leased: 0 });
  expect(states).toEqual(["connecting", "open"]);
});

test("leases move along with the session", async () => {
  const { proxy, client } = await behind({ refusesUpgrades: true }, { settings: PROBING });
  const attempts: number[] = [];
  const signals: AbortSignal[] = [];
  let finish = () => {};
  const stop = new AbortController();
  const consuming = client.consume(
    "q",
    ({ attempt, signal }) => {
      attempts.push(attempt);
      signals.push(signal);
      return new Promise<void>((resolve) => (finish = resolve));
    },
    { signal: stop.signal },
  );
  await client.publish("q", 1);
  await eventually(() => attempts.length === 1);
  expect(client.state).toBe("polling");
  proxy.manners.refusesUpgrades = false;
  await eventually(() => client.state === "open");
  finish();
  await client.publish("q", 2);
  await eventually(() => attempts.length === 2);
  finish();
  await sleep(50);
  expect(signals.map(({ aborted }) => aborted)).toEqual([false, false]);
  stop.abort();
  await consuming;
  expect(attempts).toEqual([1, 1]);
  expect((await client.queues.stats("q")).acked).toBe(2);
});

test("where a proxy cuts WebSockets again and again it polls", async () => {
  // Ten seconds in `CUT_MS=10000 npx vitest run network`; less where time is dear.
  const cutsAfterMs = Number(process.env["CUT_MS"] ?? 1000);
  const { proxy, client } = await behind({ cutsAfterMs });
  const states: string[] = [];
  client.addEventListener("state", ({ detail }) => states.push(detail.state));
  const got = await flow(client, 60, cutsAfterMs / 12);
  expect(new Set(got).size).toBe(60);
  await eventually(() => states.includes("polling"));
  expect(proxy.cuts).toBeGreaterThan(2);
  expect((await client.queues.stats("q")).acked).toBe(60);
}, 300_000);

test.each(["ws", "poll"] as const)("%s behind a proxy that cuts", async (transport) => {
  const { proxy, client } = await behind({ cutsAfterMs: 1500 }, { transport });
  const got = await flow(client, 60, 100);
  expect(proxy.cuts).toBeGreaterThan(2);
  expect(new Set(got).size).toBe(60);
  expect((await client.queues.stats("q")).acked).toBe(60);
});

test.each(["ws", "poll"] as const)(
  "%s: a token is asked for at every connect",
  async (transport) => {
    const server = await new Server().start();
    onTestFinished(() => server.close());
    const key = await server.makeKey();
    const asked: string[] = [];
    const token = async () => {
      const answer = await fetch(`${server.url}/v1/tokens`, {
        method: "POST",
        headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
        body: JSON.stringify({
          rules: ["publish:q", "consume:q", "manage:q"],
          ttl_ms: 4000, // enough to connect with, also on a busy machine
        }),
      });
      const made = ((await answer.json()) as { token: string }).token;
      asked.push(made);
      return made;
    };
    const client = await connect(server.url, { token, transport });
    onTestFinished(() => client.close({ timeoutMs: 1000 }));
    while (asked.length < 3) expect(new Set(await flow(client, 5, 100)).size).toBe(5);
    expect(new Set(asked).size).toBe(asked.length);
  },
);

test("bad credentials are final", async () => {
  const server = await new Server().start();
  onTestFinished(() => server.close());
  await server.makeKey();
  for (const transport of ["ws", "poll", "auto"] as const) {
    const bad = connect(server.url, { token: "nonsense", transport });
    await expect(bad).rejects.toMatchObject({ code: "unauthorized" });
    const none = connect(server.url, { token: () => null, transport });
    await expect(none).rejects.toMatchObject({ code: "unauthorized" });
  }
  const broken = connect(server.url, {
    token: () => Promise.reject(new Error("vault is down")),
    settings: { connectMs: 300 },
  });
  await expect(broken).rejects.toThrow("no token: Error: vault is down");
});
