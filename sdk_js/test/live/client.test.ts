/** Against a real server, over both transports: publish, consume, settle, restart. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import {
  type Client,
  connect,
  ConnectionLost,
  type ConnectOptions,
  Item,
} from "../../src/index.js";
import { eventually, freshQueue, nothing, range, receive, sleep } from "./help.js";
import { Server } from "./server.js";

const server = new Server();
const clients: Client[] = [];

beforeAll(() => server.start());
afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.close({ timeoutMs: 2000 })));
});
afterAll(() => server.close());

describe.each(["ws", "poll"] as const)("%s", (transport) => {
  async function client(options: ConnectOptions = {}): Promise<Client> {
    const made = await connect(server.url, { transport, ...options });
    clients.push(made);
    return made;
  }

  test("publish, subscribe, ack", async () => {
    const queue = freshQueue();
    const one = await client();
    const id = await one.publish(queue, { order: 17 }, { key: "k", headers: { type: "o" } });
    const subscription = await one.subscribe<{ order: number }>(queue);
    const { value: message } = await subscription.next();
    expect(message).toMatchObject({
      id,
      body: { order: 17 },
      key: "k",
      headers: { type: "o" },
      attempt: 1,
      data: null,
      dead: null,
      lost: false,
      isSettled: false,
    });
    expect(message!.fence).toBeGreaterThan(0);
    expect(message!.publishedAt).toBeGreaterThan(1.7e12);
    await message!.ack();
    await expect(message!.ack()).rejects.toMatchObject({ code: "conflict" });
    expect((await one.queues.stats(queue)).acked).toBe(1);
  });

  test("bytes come back", async () => {
    const queue = freshQueue();
    const one = await client();
    const data = Uint8Array.from(range(256));
    await one.publish(queue, undefined, { data });
    await one.publish(queue, undefined, { data: data.buffer });
    for (const message of await receive(await one.subscribe(queue), 2)) {
      expect(message.data).toEqual(data);
      expect(message.body).toBe(null);
      await message.ack();
    }
  });

  test("nack, reject, dead letters", async () => {
    const queue = freshQueue();
    const one = await client();
    await one.publish(queue, "bad");
    const subscription = await one.subscribe(queue);
    const [first] = await receive(subscription, 1);
    await first!.nack(new Error("not yet"), { delayMs: 0 });
    const [second] = await receive(subscription, 1);
    expect(second).toMatchObject({ id: first!.id, attempt: 2 });
    expect(second!.fence).toBeGreaterThan(first!.fence!);
    await second!.reject("no such customer");
    const [letter] = await receive(await one.subscribe(`${queue}.dead`), 1);
    expect(letter!.dead).toMatchObject({
      cause: "rejected",
      queue,
      attempts: 2,
      error: "no such customer",
    });
    await letter!.ack();
  });

  test("a lease is extended on request, and lost without", async () => {
    const queue = freshQueue();
    const one = await client();
    await one.publish(queue, 1);
    const subscription = await one.subscribe(queue, { leaseMs: 2500 });
    const [message] = await receive(subscription, 1);
    const { signal } = message!;
    await message!.extend(60_000);
    await sleep(3000);
    expect(message!.lost).toBe(false);
    await message!.extend(1000);
    await eventually(() => message!.lost);
    expect(signal.aborted).toBe(true);
    expect(signal.reason).toMatchObject({ code: "lease_lost" });
    await expect(message!.ack()).rejects.toMatchObject({ code: "lease_lost" });
    const [again] = await receive(subscription, 1);
    await again!.ack();
  });

  test("run acks, nacks and keeps the lease", async () => {
    const queue = freshQueue();
    const one = await client();
    await one.publish(queue, 1);
    const subscription = await one.subscribe(queue, { leaseMs: 3000 });
    const [first] = await receive(subscription, 1);
    const fault = new Error("once");
    await expect(first!.run(() => Promise.reject(fault))).rejects.toBe(fault);
    const [second] = await receive(subscription, 1);
    const result = await second!.run(async (message) => {
      await sleep(4500);
      return message.attempt;
    });
    expect(result).toBe(2);
    await nothing(subscription);
  });

  test("declaring a queue changes nothing of one that is there", async () => {
    const queue = freshQueue();
    const { queues } = await client();
    const made = await queues.create(queue, { maxAttempts: 3 });
    expect(await queues.create(queue, { maxAttempts: 3 })).toEqual(made);
    await expect(queues.create(queue, { maxAttempts: 4 })).rejects.toMatchObject({
      code: "conflict",
      message: expect.stringContaining("max_attempts is 3, not 4") as string,
    });
    expect(await queues.ensure(queue, { maxAttempts: 4 })).toEqual(made);
    await queues.pause(queue);
    const replaced = await queues.replace(queue, { leaseMs: 5000 });
    expect(replaced).toMatchObject({ maxAttempts: 5, leaseMs: 5000, paused: true });
    const { queues: listed } = await queues.list({ limit: 1000, stats: true });
    expect(listed.find(({ name }) => name === queue)?.stats).toMatchObject({ depth: 0 });
    expect(await queues.purge(queue)).toEqual({ purged: 0 });
  });

  test("consume: concurrency, failures, the end", async () => {
    const queue = freshQueue();
    const one = await client();
    await one.queues.create(queue, { backoffBaseMs: 10 });
    const stop = new AbortController();
    const faults: unknown[] = [];
    const done: number[] = [];
    let running = 0;
    let most = 0;
    one.addEventListener("handlererror", ({ detail }) => faults.push(detail.error));
    await one.publishMany(queue, range(60));
    const consuming = one.consume<number>(
      queue,
      async ({ body, attempt }) => {
        most = Math.max(most, ++running);
        await sleep(10);
        running -= 1;
        if (body === 7 && attempt === 1) throw new Error("once");
        done.push(body);
      },
      { concurrency: 7, signal: stop.signal },
    );
    await eventually(() => done.length === 60);
    stop.abort();
    await consuming; // and with it the last ack is known to be stored
    expect(await one.queues.stats(queue)).toMatchObject({ acked: 60, leased: 0 });
    expect(most).toBe(7);
    expect(done.sort((a, b) => a - b)).toEqual(range(60));
    expect(faults).toEqual([new Error("once")]);
  });

  test("an aborted consume asks its handlers to stop, and gives back", async () => {
    const queue = freshQueue();
    const one = await client();
    await one.publish(queue, 1);
    const stop = new AbortController();
    let begun = false;
    const consuming = one.consume(
      queue,
      ({ signal }) =>
        new Promise((_, reject) => {
          begun = true;
          signal.addEventListener("abort", () => reject(signal.reason as Error));
        }),
      { signal: stop.signal },
    );
    await eventually(() => begun);
    stop.abort();
    await consuming;
    const [message] = await receive(await one.subscribe(queue), 1, 5000);
    expect(message!.attempt).toBe(2);
    await message!.ack();
  });

  test("1,000 messages with one key come in order", async () => {
    const queue = freshQueue();
    const one = await client();
    const items = range(1000).map((body) => new Item({ body, key: "k" }));
    const results = await one.publishMany(queue, items);
    expect(results.every(({ id, error }) => id && !error)).toBe(true);
    const got: number[] = [];
    const stop = new AbortController();
    const consuming = one.consume<number>(queue, ({ body }) => void got.push(body), {
      signal: stop.signal,
    });
    await eventually(() => got.length >= 1000);
    stop.abort();
    await consuming;
    expect(got).toEqual(range(1000));
  });

  test("a signal ends a wait", async () => {
    const queue = freshQueue();
    const one = await client();
    const subscription = await one.subscribe(queue);
    await nothing(subscription, 50);
    const aborted = AbortSignal.abort();
    await expect(one.publish(queue, 1, { signal: aborted })).rejects.toThrow(/abort/i);
    await expect(one.subscribe(queue, { signal: aborted })).rejects.toThrow(/abort/i);
    await expect(one.queues.get(queue, { signal: aborted })).rejects.toThrow(/abort/i);
    await one.publish(queue, 2);
    const [message] = await receive(subscription, 1);
    expect(message!.body).toBe(2); // the publish that was aborted never left
    await message!.ack();
  });

  test("a subscription's signal closes it", async () => {
    const queue = freshQueue();
    const one = await client();
    const stop = new AbortController();
    const subscription = await one.subscribe(queue, { signal: stop.signal });
    setTimeout(() => stop.abort(), 50);
    for await (const message of subscription) expect.fail(`there was ${message.id}`);
  });

  test("leaving the loop closes the subscription", async () => {
    const queue = freshQueue();
    const one = await client();
    await one.publishMany(queue, range(5));
    for await (const message of await one.subscribe(queue)) {
      await message.ack();
      break;
    }
    const rest = await receive(await one.subscribe(queue), 4);
    expect(rest.map(({ attempt }) => attempt)).toEqual([1, 1, 1, 1]);
    await Promise.all(rest.map((message) => message.ack()));
  });

  test("what is wrong is said by type", async () => {
    const queue = freshQueue();
    const one = await client();
    const wrong: [() => Promise<unknown>, string, RegExp][] = [
      [() => one.publish("no/such name", 1), "bad_request", /name/],
      [() => one.publish(queue), "bad_request", /exactly one/],
      [() => one.publish(queue, 1, { data: new Uint8Array() }), "bad_request", /exactly one/],
      [() => one.publish(queue, 1n), "bad_request", /JSON/],
      [() => one.publish(queue, () => 1), "bad_request", /JSON/],
      [() => one.publish(queue, "\ud800"), "bad_request", /surrogate/],
      [() => one.publish(queue, 1, { key: "" }), "bad_request", /key/],
      [() => one.publish(queue, 1, { key: "\ud800" }), "bad_request", /surrogate/],
      [() => one.publish(queue, 1, { key: "k", priority: 1 }), "bad_request", /key/],
      [() => one.publish(queue, 1, { priority: 1.5 }), "bad_request", /priority/],
      [() => one.publish(queue, 1, { headers: { a: 1 } as never }), "bad_request", /headers/],
      [() => one.publish(queue, 1, { delay: 1 } as never), "bad_request", /no option delay/],
      [() => one.publish(queue, "x".repeat(2 ** 20)), "too_large", /bytes/],
      [() => one.subscribe(queue, { credit: 0 }), "bad_request", /credit/],
      [() => one.subscribe(queue, { ack: "maybe" as never }), "bad_request", /ack/],
      [() => one.subscribe(queue, { leaseMs: 1 }), "bad_request", /lease_ms/],
      [() => one.consume(queue, null as never), "bad_request", /handler/],
      [() => one.consume(queue, () => {}, { concurrency: 0 }), "bad_request", /concurrency/],
      [() => one.queues.get("a/b"), "bad_request", /name/],
      [() => connect("ftp://x"), "bad_request", /not a server URL/],
      [() => connect("ws://u:p@x"), "bad_request", /not a server URL/],
      [() => connect("nonsense"), "bad_request", /not a server URL/],
      [() => connect(null, { transport: "tcp" as never }), "bad_request", /transport/],
      [() => connect(null, { settings: { closeMs: 0 } }), "bad_request", /closeMs/],
      [() => connect(null, { urls: 1 } as never), "bad_request", /no option urls/],
    ];
    for (const [call, code, message] of wrong) {
      await expect(call()).rejects.toMatchObject({
        code,
        message: expect.stringMatching(message),
      });
    }
    expect(await one.publish(queue, "still alive")).toBeTruthy();
  });

  test("closed is closed", async () => {
    const one = await client();
    const states: string[] = [];
    one.addEventListener("state", ({ detail }) => states.push(detail.state));
    expect(one.state).toBe(transport === "ws" ? "open" : "polling");
    await one.close();
    expect(one.state).toBe("closed");
    expect(states).toEqual(["closed"]);
    await expect(one.publish("q", 1)).rejects.toBeInstanceOf(ConnectionLost);
    await expect(one.subscribe("q")).rejects.toMatchObject({ code: "connection_lost" });
    await one.close();
  });

  test("nobody there", async () => {
    const options: ConnectOptions = { transport, settings: { connectMs: 300 } };
    await expect(connect("ws://127.0.0.1:9", options)).rejects.toThrow(/no connection/);
    const stop = AbortSignal.timeout(100);
    const patient = connect("ws://127.0.0.1:9", { transport, signal: stop });
    await expect(patient).rejects.toThrow(/timeout/i);
  });
});
