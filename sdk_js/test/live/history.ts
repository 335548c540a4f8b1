/** A load whose clients write down what they ask and see, for the project's checker to judge. */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";
import type { Client } from "../../src/index.js";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const PYTHON = `${ROOT}.venv/bin/python`;

export interface Load {
  /** Resolves when every message is confirmed. */
  published: Promise<unknown>;
  confirmed(): number;
  /** The server was killed. */
  crashed(): void;
  /** Wait until nothing is left; the history. */
  finish(): Promise<string>;
}

/** Publishes `total` messages, some at a time, and acks them one by one. It runs in pages, too: so
 * it may use nothing from outside. */
export function load(client: Client, queue: string, total: number): Load {
  const lines: string[] = [];
  const note = (event: string, fields: object = {}) =>
    lines.push(JSON.stringify({ event, at: Math.round(performance.now()), ...fields }));
  let ops = 0;
  let confirmed = 0;
  note("begin", { sees: "client" });

  const publish = async (uid: string) => {
    const op = ++ops;
    note("publish", { op, queue, uid });
    const [told] = await client.publishMany(queue, [uid]);
    if (told!.error) note("publish_failed", { op, code: told!.error.code });
    else note("published", { op, id: told!.id, duplicate: told!.duplicate });
    confirmed += told!.error ? 0 : 1;
  };
  const lane = async (first: number) => {
    for (let n = first; n < total; n += 20) await publish(`u-${n}`);
  };

  const stop = new AbortController();
  const consuming = client.consume<string>(
    queue,
    async (message) => {
      const { id, body: uid, fence, attempt } = message;
      const receipt = `${id}/${fence}`; // no two grants of a message have the same fence
      note("grant", { queue, id, uid, receipt, fence, attempt });
      const op = ++ops;
      note("settle", { op, kind: "ack", receipt });
      const result = await message.ack().then(
        () => "ok",
        (error) => (error.code === "lease_lost" ? "lease_lost" : "unknown"),
      );
      note("verdict", { op, result });
    },
    { concurrency: 200, credit: 1000, signal: stop.signal },
  );

  return {
    published: Promise.all(Array.from({ length: 20 }, (_, first) => lane(first))),
    confirmed: () => confirmed,
    crashed: () => note("crash", { node: "server" }),
    async finish() {
      note("quiesce", { queues: [queue], deadline: Math.round(performance.now()) + 60_000 });
      let left = 1;
      while (left) {
        const { ready, reserved, leased, delayed, retrying } = await client.queues.stats(queue);
        left = ready + reserved + leased + delayed + retrying;
        if (left) await new Promise((resolve) => setTimeout(resolve, 50));
      }
      stop.abort();
      await consuming;
      note("drained", { left });
      // What is dead is not lost, and only who looks for it knows.
      const dead = `${queue}.dead`;
      const { messages } = await client.queues.peek(dead, { limit: 1000 }).catch((error) => {
        if (error.code !== "not_found") throw error;
        return { messages: [] };
      });
      const [ids, uids] = [messages.map(({ id }) => id), messages.map(({ body }) => body)];
      note("stored", { queue: dead, ids, uids });
      return `${lines.join("\n")}\n`;
    },
  };
}

/** Have the checker look at a history; how many events of each kind it has. */
export function judge(history: string): Record<string, number> {
  const { status, stdout, stderr } = spawnSync(PYTHON, ["-m", "tests.history"], {
    cwd: ROOT,
    input: history,
    encoding: "utf8",
    maxBuffer: 2 ** 26,
  });
  expect(status, `${stdout}\n${stderr}`).toBe(0);
  return (JSON.parse(stdout) as { events: Record<string, number> }).events;
}
