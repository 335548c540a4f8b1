/**
 * A consumer: a worker with a connection of its own, so that it can be killed like a process.
 *
 * It takes up every message it gets at once, as many as its credit allows, and says what it does.
 */

import { connect, type Message } from "pushlane";
import type { Begin, FromConsumer, Job, Mode, ToConsumer } from "./letters.js";

const CONNECT_MS = 120_000;
const RECONNECT_MS = 1000;
/** Of the lease, after which a slow consumer extends it. */
const EXTEND_AT = 0.5;
/** A slow one takes this many leases for a message. */
const SLOW_LEASES = 1.4;

let mode: Mode = "works";
let fixed = 0;

const tell = (letter: FromConsumer): void => postMessage(letter);
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

onmessage = ({ data }: MessageEvent<ToConsumer>) => {
  if (data.is === "mode") mode = data.mode;
  else if (data.is === "fixed") fixed = data.bug;
  else void run(data);
};

async function run(begin: Begin): Promise<void> {
  ({ mode, fixed } = begin);
  const client = await connect(begin.url, {
    name: begin.name,
    transport: "ws",
    settings: { connectMs: CONNECT_MS, backoffMaxMs: RECONNECT_MS },
  });
  client.addEventListener("state", ({ detail }) => tell({ is: "state", state: detail.state }));
  const { credit, leaseMs, queue } = begin;
  const messages = await client.subscribe<Job>(queue, { credit, leaseMs });
  tell({ is: "state", state: client.state });
  for await (const message of messages) void handle(message, begin);
}

async function handle(message: Message<Job>, begin: Begin): Promise<void> {
  const { id, body, key, attempt } = message;
  const isOurs = typeof body?.uid === "string" && Number.isInteger(body.n);
  tell({ is: "took", id, uid: isOurs ? body.uid : id, key, n: isOurs ? body.n : null, attempt });
  let isOver = false;
  message.signal.addEventListener("abort", () => {
    if (!isOver) tell({ is: "lost", id });
    isOver = true;
  });
  if (mode === "hangs") return;
  try {
    await work(message, begin);
    if (isOver) return;
    tell({ is: "settling", id, how: "ack" });
    await message.ack();
    tell({ is: "acked", id });
  } catch (fault) {
    if (!isOver && !(await fail(message, fault as Error))) tell({ is: "lost", id });
  }
  isOver = true;
}

async function work(message: Message<Job>, { workMs, leaseMs }: Begin): Promise<void> {
  if (mode === "slow") await workSlowly(message, leaseMs);
  else await sleep(workMs * (0.5 + Math.random()));
  if (mode === "fails") throw new Error("this consumer fails");
  const bug = message.body?.bug ?? 0;
  if (bug > fixed) throw new Error(`it runs into bug ${bug}`);
}

async function workSlowly(message: Message<Job>, leaseMs: number): Promise<void> {
  const until = performance.now() + SLOW_LEASES * leaseMs;
  for (;;) {
    const left = until - performance.now();
    await sleep(Math.min(left, EXTEND_AT * leaseMs));
    if (left <= EXTEND_AT * leaseMs || message.lost) return;
    await message.extend(leaseMs);
    tell({ is: "extended", id: message.id });
  }
}

/** Gives it back; false: it is no longer ours to give. */
async function fail(message: Message<Job>, fault: Error): Promise<boolean> {
  if (message.isSettled) return false; // it was the ack that failed
  const { id } = message;
  tell({ is: "settling", id, how: "nack" });
  try {
    await message.nack(fault.message);
  } catch {
    return false;
  }
  tell({ is: "failed", id, error: fault.message });
  return true;
}
