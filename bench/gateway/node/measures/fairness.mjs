// How evenly equal consumers of one queue are served at saturation.

import { Flow, closeAll, sleep, times } from "../flow.mjs";

export async function fairness(system, spec) {
  const { queue, producers, consumers, window, credit } = spec;
  await system.queue(queue);
  const counts = new Float64Array(consumers);
  const readers = await times(consumers, (index) =>
    system.consumer(queue, { credit }, (consumer, message) => {
      counts[index]++;
      consumer.ack(message);
    }),
  );
  const writers = await times(producers, () => system.producer(queue));
  const flow = new Flow(writers, window);
  flow.start();
  await sleep(spec.warm_s);
  const before = counts.slice();
  await sleep(spec.run_s);
  const got = counts.map((count, index) => count - before[index]).sort();
  await flow.stop();
  await closeAll(writers, readers);
  const [least, most] = [got[0], got.at(-1)];
  return { spread: (most - least) / most, least, most, consumers };
}
