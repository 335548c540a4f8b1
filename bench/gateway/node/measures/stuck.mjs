// What one consumer that no longer reads does to the others. It is one of many on the queue, and the
// only one of a second queue whose messages then fill its socket to the brim. The others' rate is
// taken before, while and after it is stuck, several times over: the ratio to the mean of before and
// after counts, which hides neither the effect nor takes the machine's drift for one.

import { Flow, closeAll, sleep, times } from "../flow.mjs";

const CLOG = `"${"x".repeat(1022)}"`;

export async function stuck(system, spec) {
  const { queue, producers, consumers, window, credit } = spec;
  await system.queue(queue);
  let others = 0;
  const readers = await times(consumers - 1, () =>
    system.consumer(queue, { credit }, (consumer, message) => {
      others++;
      consumer.ack(message);
    }),
  );
  const writers = await times(producers, () => system.producer(queue));
  const flow = new Flow(writers, window);
  flow.start();
  await sleep(spec.warm_s);
  const rate = async () => {
    const [from, at] = [others, performance.now()];
    await sleep(spec.run_s);
    return ((others - from) * 1000) / (performance.now() - at);
  };
  const rounds = await times(spec.rounds, async (round) => {
    const acks = (consumer, message) => consumer.ack(message);
    const victim = await system.consumer(queue, { credit }, acks);
    const before = await rate();
    await clog(system, victim, `${queue}-clog-${round}`, spec.clog);
    const beside = await rate();
    victim.cut();
    return { beside, free: (before + (await rate())) / 2 };
  });
  await flow.stop();
  await closeAll(writers, readers);
  return { rounds, consumers };
}

async function clog(system, victim, queue, count) {
  victim.stick(queue, count);
  const writer = await system.producer(queue);
  await new Promise((resolve, reject) => {
    let open = count;
    const done = (error) => (error ? reject(new Error(error)) : --open || resolve());
    for (let i = 0; i < count; i++) writer.publish(CLOG, done);
  });
  writer.close();
}
