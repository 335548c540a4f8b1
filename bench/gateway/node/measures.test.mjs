// The measuring code against systems that live in memory: one that is right, and some that are not.

import assert from "node:assert/strict";
import { test } from "node:test";

import { seconds } from "./counters.mjs";
import { backlog } from "./measures/backlog.mjs";
import { fairness } from "./measures/fairness.mjs";
import { latency } from "./measures/latency.mjs";
import { throughput } from "./measures/throughput.mjs";
import { SIZE, Seen, bodyOf, numberOf } from "./messages.mjs";

const SPEC = {
  queue: "q", producers: 2, consumers: 3, window: 8, credit: 4, rate: 1000, count: 500,
  warm_s: 0.05, run_s: 0.1, drain_s: 0.1, pid: process.pid,
};

// A queue that answers a publish later and deals messages out in turns. `deal(number)` says how
// often a message is delivered.
function memory(deal = () => 1) {
  const consumers = [];
  const stored = [];
  const state = { open: 0, most: 0, acked: 0 };
  let turn = 0;
  const pass = () => {
    while (consumers.length && stored.length) {
      const body = stored.shift();
      for (let i = deal(numberOf(body)); i > 0; i--) consumers[turn++ % consumers.length](body);
    }
  };
  return {
    state,
    queue: async () => {},
    producer: async () => ({
      publish(body, done) {
        state.most = Math.max(state.most, ++state.open);
        setImmediate(() => {
          state.open--;
          stored.push(body);
          pass();
          done(null);
        });
      },
      close() {},
    }),
    consumer: async (queue, { credit }, onMessage) => {
      const consumer = { ack: () => state.acked++, settled: async () => {}, close() {} };
      consumers.push((body) => onMessage(consumer, body, body));
      setImmediate(pass);
      return consumer;
    },
  };
}

test("a body has 200 bytes and says its number, as text, as JSON and as bytes", () => {
  const body = bodyOf(1234567);
  assert.equal(Buffer.byteLength(body), SIZE);
  assert.equal(numberOf(body), 1234567);
  assert.equal(numberOf(JSON.parse(body)), 1234567);
  assert.equal(numberOf(Buffer.from(body)), 1234567);
  assert.throws(() => numberOf(body.slice(1)));
  assert.throws(() => numberOf(Buffer.from(body).subarray(1)));
});

test("what is seen twice is counted once", () => {
  const seen = new Seen(3);
  for (const number of [0, 2, 2]) seen.add(number);
  assert.deepEqual([seen.count, seen.again], [2, 1]);
});

test("throughput keeps the window full and no fuller, and counts everything", async () => {
  const system = memory();
  const result = await throughput(system, SPEC);
  assert.equal(system.state.most, SPEC.producers * SPEC.window);
  assert.equal(system.state.acked, result.published);
  assert.deepEqual([result.missing, result.again], [0, 0]);
  assert.ok(result.messages > 0 && result.messages < result.published);
  assert.ok(Math.abs(result.rate - result.messages / result.seconds) < 1);
});

test("throughput tells of a message that was lost", async () => {
  const result = await throughput(memory((number) => (number === 5 ? 0 : 1)), SPEC);
  assert.deepEqual([result.missing, result.again], [1, 0]);
});

test("throughput tells of a message that came twice", async () => {
  const result = await throughput(memory((number) => (number === 5 ? 2 : 1)), SPEC);
  assert.deepEqual([result.missing, result.again], [0, 1]);
});

test("latency keeps its pace", async () => {
  const system = memory();
  const result = await latency(system, SPEC);
  assert.equal(result.messages, 150);
  assert.equal(system.state.acked, 150);
  assert.ok(result.p50_ms > 0 && result.p50_ms <= result.p99_ms && result.p99_ms <= result.max_ms);
});

test("a backlog is stored before it is drained", async () => {
  const system = memory();
  const result = await backlog(system, SPEC);
  assert.equal(system.state.acked, SPEC.count);
  assert.deepEqual([result.messages, result.missing], [SPEC.count, 0]);
});

test("fairness is the distance of the worst served from the best", async () => {
  assert.ok((await fairness(memory(), SPEC)).spread < 0.1);
});

test("CPU time of a process counts", () => {
  const before = seconds(process.pid);
  for (const until = Date.now() + 60; Date.now() < until; );
  assert.ok(seconds(process.pid) > before);
});
