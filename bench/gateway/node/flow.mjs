// A flow of messages: keeps `window` unanswered publishes going on each producer.

import { MOST, bodyOf } from "./messages.mjs";

export class Flow {
  constructor(writers, window) {
    this.writers = writers;
    this.window = window;
    this.next = 0;
    this.open = 0;
    this.going = false;
    this.limit = MOST;
    this.idle = null;
  }

  start(limit = MOST) {
    this.going = true;
    this.limit = limit;
    for (const writer of this.writers) this.begin(writer);
  }

  begin(writer) {
    const done = (error) => {
      if (error) throw new Error(`a publish failed: ${error}`);
      this.open--;
      if (this.going && this.next < this.limit) this.publish(writer, done);
      else if (this.open === 0) this.idle?.();
    };
    for (let i = 0; i < this.window && this.next < this.limit; i++) this.publish(writer, done);
  }

  publish(writer, done) {
    this.open++;
    writer.publish(bodyOf(this.next++), done);
  }

  // Publish no more; resolves when all publishes are answered.
  async stop() {
    this.going = false;
    await this.finished();
  }

  async finished() {
    if (this.open) await new Promise((resolve) => (this.idle = resolve));
  }
}

// Wait until all that was published has come. Answers how many have not.
export async function drained(seen, flow, patience_s) {
  const until = performance.now() + patience_s * 1000;
  while (seen.count < flow.next && performance.now() < until) await sleep(0.005);
  return flow.next - seen.count;
}

export async function times(count, make) {
  const made = [];
  for (let i = 0; i < count; i++) made.push(await make(i));
  return made;
}

export function sleep(seconds) {
  return new Promise((resolve) => setTimeout(resolve, seconds * 1000));
}

export async function closeAll(...groups) {
  for (const each of groups.flat()) await each.close();
}
