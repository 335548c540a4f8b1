// Redis Streams over TCP (Redis speaks no WebSocket): XADD, a consumer group, XACK. The client
// library sends the commands of one tick in one write; acks of one tick go into one XACK.

import { createClient } from "redis";

const GROUP = "workers";

export async function connect({ url }) {
  const open = async () => {
    const client = createClient({ url });
    client.on("error", (error) => {
      throw error;
    });
    await client.connect();
    return client;
  };
  let names = 0;
  return {
    queue: async (queue) => {
      const client = await open();
      await client.xGroupCreate(queue, GROUP, "0", { MKSTREAM: true });
      await client.close();
    },
    producer: async (queue) => new Producer(await open(), queue),
    consumer: async (queue, { credit }, onMessage) => {
      const consumer = new Consumer(await open(), await open(), queue, `c${++names}`, credit);
      consumer.running = consumer.run(onMessage);
      return consumer;
    },
  };
}

class Producer {
  constructor(client, queue) {
    this.client = client;
    this.queue = queue;
  }

  publish(body, done) {
    this.client.xAdd(this.queue, "*", { body }).then(() => done(null), done);
  }

  close() {
    return this.client.close();
  }
}

// A blocking read keeps its connection busy, so acks have one of their own.
class Consumer {
  constructor(reader, acker, queue, name, credit) {
    Object.assign(this, { reader, acker, queue, name, credit });
    this.ids = [];
    this.acked = null;
    this.going = true;
  }

  async run(onMessage) {
    const from = { key: this.queue, id: ">" };
    while (this.going) {
      const options = { COUNT: this.credit, BLOCK: 100 };
      const found = await this.reader.xReadGroup(GROUP, this.name, from, options);
      for (const { messages } of found ?? []) {
        for (const { id, message } of messages) onMessage(this, id, message.body);
      }
      if (this.acked) await this.acked; // so that it never holds more than its credit
    }
  }

  ack(id) {
    if (this.ids.push(id) === 1) this.acked = Promise.resolve().then(() => this.send());
  }

  async send() {
    const ids = this.ids;
    this.ids = [];
    await this.acker.xAck(this.queue, GROUP, ids);
  }

  async settled() {
    this.going = false;
    await this.running;
    await this.acked;
  }

  async close() {
    await this.reader.close();
    await this.acker.close();
  }
}
