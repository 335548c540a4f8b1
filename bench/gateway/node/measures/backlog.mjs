// How fast one consumer drains a backlog that was stored before it came.

import { seconds } from "../counters.mjs";
import { Flow, closeAll, drained, times } from "../flow.mjs";
import { Seen, numberOf } from "../messages.mjs";

export async function backlog(system, spec) {
  const { queue, producers, window, credit, count, pid } = spec;
  await system.queue(queue);
  const writers = await times(producers, () => system.producer(queue));
  const flow = new Flow(writers, window);
  const began = performance.now();
  flow.start(count);
  await flow.finished();
  const filled = performance.now();
  const seen = new Seen(count);
  const from = seconds(pid);
  let last = 0;
  const reader = await system.consumer(queue, { credit }, (consumer, message, body) => {
    seen.add(numberOf(body));
    consumer.ack(message);
    last = performance.now();
  });
  const missing = await drained(seen, flow, spec.drain_s);
  await reader.settled();
  const result = {
    fill_rate: (count * 1000) / (filled - began),
    rate: (seen.count * 1000) / (last - filled),
    messages: count,
    server_cpu_s: seconds(pid) - from,
    missing,
    again: seen.again,
  };
  await closeAll(writers, [reader]);
  return result;
}
