// How long a message takes from its publish call to the consumer's callback, and to the answer that
// it is stored; one producer and one consumer, at a fixed rate. Both are in this process, so that one
// clock tells.

import { ownSeconds, seconds } from "../counters.mjs";
import { closeAll, drained, sleep } from "../flow.mjs";
import { Seen, bodyOf, numberOf } from "../messages.mjs";

export async function latency(system, spec) {
  const { queue, credit, rate, pid } = spec;
  const skip = Math.floor(rate * spec.warm_s);
  const total = skip + Math.floor(rate * spec.run_s);
  await system.queue(queue);
  const seen = new Seen(total);
  const sent = new Float64Array(total);
  const took = new Float64Array(total);
  const stored = new Float64Array(total);
  const reader = await system.consumer(queue, { credit }, (consumer, message, body) => {
    const number = numberOf(body);
    took[number] = performance.now() - sent[number];
    seen.add(number);
    consumer.ack(message);
  });
  const writer = await system.producer(queue);
  const pace = { next: 0 };
  const from = { cpu: ownSeconds(), server: seconds(pid) };
  await publishAll(pace, total, rate, (number) => {
    sent[number] = performance.now();
    writer.publish(bodyOf(number), (error) => {
      if (error) throw new Error(`a publish failed: ${error}`);
      stored[number] = performance.now() - sent[number];
    });
  });
  const missing = await drained(seen, pace, spec.drain_s);
  await reader.settled();
  const result = {
    ...quantiles(took.subarray(skip).sort()),
    stored_p50_ms: quantiles(stored.subarray(skip).sort()).p50_ms,
    messages: total,
    server_cpu_s: seconds(pid) - from.server,
    client_cpu_s: ownSeconds() - from.cpu,
    missing,
    again: seen.again,
  };
  await closeAll([writer, reader]);
  return result;
}

// Timers come late: what is due by then goes out at once.
async function publishAll(pace, total, rate, publish) {
  const began = performance.now();
  while (pace.next < total) {
    const due = Math.min(total, Math.floor(((performance.now() - began) * rate) / 1000));
    while (pace.next < due) publish(pace.next++);
    await sleep(0.001);
  }
}

function quantiles(sorted) {
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
  return { p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1) };
}
