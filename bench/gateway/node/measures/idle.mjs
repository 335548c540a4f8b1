// The server's memory per consumer that has subscribed and gets nothing. Some are there before, so
// that what the first ones cost once and for all is not counted.

import { kib } from "../counters.mjs";
import { sleep } from "../flow.mjs";

const AT_ONCE = 50;

export async function idle(system, spec) {
  const { queue, count, credit, pid } = spec;
  await system.queue(queue);
  const connect = () => system.consumer(queue, { credit }, () => {});
  await many(spec.before, connect);
  await sleep(spec.settle_s);
  const before = kib(pid);
  await many(count, connect);
  await sleep(spec.settle_s);
  return { kib: (kib(pid) - before) / count, consumers: count };
}

async function many(count, connect) {
  for (let done = 0; done < count; done += AT_ONCE) {
    await Promise.all(Array.from({ length: Math.min(AT_ONCE, count - done) }, connect));
  }
}
