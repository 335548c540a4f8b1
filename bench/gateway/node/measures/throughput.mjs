// How many messages a second go the whole way, from publish to ack, with P producers and C consumers
// on one queue. After a warm-up the clock runs until the last message of the run is acked: a backlog
// that the consumers could not keep up with counts against the system.

import { ownSeconds, seconds } from "../counters.mjs";
import { Flow, closeAll, drained, sleep, times } from "../flow.mjs";
import { MOST, Seen, numberOf } from "../messages.mjs";

export async function throughput(system, spec) {
  const { queue, producers, consumers, window, credit, pid } = spec;
  await system.queue(queue);
  const seen = new Seen(MOST);
  let last = 0;
  const onMessage = (consumer, message, body) => {
    seen.add(numberOf(body));
    consumer.ack(message);
    last = performance.now();
  };
  const readers = await times(consumers, () => system.consumer(queue, { credit }, onMessage));
  const writers = await times(producers, () => system.producer(queue));
  const flow = new Flow(writers, window);
  flow.start();
  await sleep(spec.warm_s);
  const from = { at: performance.now(), seen: seen.count, cpu: ownSeconds(), server: seconds(pid) };
  await sleep(spec.run_s);
  await flow.stop();
  const missing = await drained(seen, flow, spec.drain_s);
  for (const reader of readers) await reader.settled();
  const messages = seen.count - from.seen;
  const took = (last - from.at) / 1000;
  const result = {
    rate: messages / took,
    messages,
    seconds: took,
    server_cpu_s: seconds(pid) - from.server,
    client_cpu_s: ownSeconds() - from.cpu,
    missing,
    again: seen.again,
    published: flow.next,
    frames: system.frames,
  };
  await closeAll(writers, readers);
  return result;
}
