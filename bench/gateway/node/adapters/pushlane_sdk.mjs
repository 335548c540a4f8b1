// Pushlane through its JavaScript SDK, as users call it: a promise for every publish, a handler for
// every message, which is acked when the handler is done.

import { connect as open } from "../../../../sdk_js/dist/esm/index.js";

export async function connect({ url }) {
  return {
    queue: async () => {},
    producer: async (queue) => new Producer(await open(url), queue),
    consumer: async (queue, options, onMessage) =>
      new Consumer(await open(url), queue, options, onMessage),
  };
}

class Producer {
  constructor(client, queue) {
    this.client = client;
    this.queue = queue;
  }

  // The load has bodies as JSON text, users have values.
  publish(body, done) {
    this.client.publish(this.queue, body.slice(1, -1)).then(() => done(null), done);
  }

  close() {
    return this.client.close();
  }
}

class Consumer {
  constructor(client, queue, { credit }, onMessage) {
    this.client = client;
    this.stop = new AbortController();
    const handle = (message) => onMessage(this, message, message.body);
    const { signal } = this.stop;
    this.consuming = client.consume(queue, handle, { concurrency: credit, credit, signal });
  }

  ack() {} // the SDK does, when the handler returns

  async settled() {
    this.stop.abort();
    await this.consuming;
  }

  close() {
    return this.client.close();
  }
}
