// A process with clients of the JavaScript SDK; like tests/crash/worker.py, told by its stdin what
// to do: `calm` (producers end, consumers are well from now on) and `end`.
//
//     node worker.mjs producers|consumers URL NUMBER HISTORY PAUSE_MS WORK JOBS LEASE_MS SLOW_MS
import { writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { connect } from "../../../sdk_js/dist/esm/index.js";

const [role, url, number, path, ...rest] = process.argv.slice(2);
const [pauseMs, work, jobs, leaseMs, slowMs] = rest.map((each) => (isNaN(each) ? each : +each));
const KEYS = 4;
const settings = { backoffMaxMs: 200 };

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const entries = [];
let ops = Number(number) * 1e9;
let calm = false;
let stopping;
const stop = new Promise((resolve) => (stopping = resolve));

function note(event, fields) {
  const ns = process.hrtime.bigint();
  entries.push(`[${ns},${JSON.stringify({ event, at: Number(ns / 1_000_000n), ...fields })}]`);
}

// Producers: one for each key, which waits for every answer

async function produce(client, queue, key, name) {
  for (let count = 1; !calm; count++) {
    const uid = `${name}.${count}`;
    const op = ++ops;
    note("publish", {
      op,
      queue,
      uid,
      ...(key && { key }),
      producer: name,
      order: key ? count : 0,
    });
    try {
      note("published", { op, id: await client.publish(queue, { uid }, key ? { key } : {}) });
    } catch (error) {
      note("publish_failed", { op, code: error.code ?? "internal" });
    }
    await sleep(Math.random() * 2 * pauseMs);
  }
}

async function producers(client) {
  const keys = Array.from({ length: KEYS }, (_, n) => `js${n}`);
  await Promise.all([
    ...keys.map((key, n) => produce(client, work, key, `${number}k${n}`)),
    produce(client, jobs, undefined, `${number}n`),
  ]);
}

// Consumers

async function settle(kind, receipt, call) {
  const op = ++ops;
  note("settle", { op, kind, receipt });
  let result = "ok";
  try {
    await call();
  } catch (error) {
    if (error.code === "conflict") throw error; // settled twice: a mistake of this test, or the SDK
    result = error.code === "lease_lost" ? "lease_lost" : "unknown";
  }
  note("verdict", { op, result });
}

async function handle(queue, message) {
  const { id, body, attempt, fence } = message;
  const { receipt } = message._lease.message; // programs need none, a history does
  note("grant", { queue, id, uid: body.uid, receipt, fence, attempt });
  const roll = calm ? 1 : Math.random();
  if (roll < 0.03) await sleep(slowMs);
  else if (roll < 0.9) await sleep(Math.random() * 30);
  if (roll > 0.8 && roll < 0.9)
    await settle("nack", receipt, () => message.nack("no", { delayMs: 50 }));
  else await settle("ack", receipt, () => message.ack());
}

async function consumers(client) {
  const controller = new AbortController();
  void stop.then(() => controller.abort());
  const consume = (queue) =>
    client.consume(queue, (message) => handle(queue, message), {
      concurrency: 20, leaseMs, signal: controller.signal,
    }); // prettier-ignore
  await Promise.all([consume(work), consume(jobs)]);
}

createInterface({ input: process.stdin })
  .on("line", (line) => (line === "calm" ? (calm = true) : stopping()))
  .on("close", () => process.exit(1));
console.log("begun");
const client = await connect(url, { settings });
await (role === "producers" ? producers : consumers)(client);
await client.close();
writeFileSync(path, entries.map((entry) => `${entry}\n`).join(""));
process.stdout.write("done\n", () => process.exit(0));
