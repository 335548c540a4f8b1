// NATS JetStream over WebSocket: a stream in files with its default limits, and one durable pull
// consumer that all readers share, as NATS recommends for queues. The client library gathers what is
// sent in one tick by itself.

import { AckPolicy, StorageType, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { wsconnect } from "@nats-io/nats-core";
import WebSocket from "ws";

const DURABLE = "workers";
globalThis.WebSocket ??= WebSocket;

export async function connect({ url, credit }) {
  const open = () => wsconnect({ servers: url, reconnect: false });
  return {
    queue: async (queue) => {
      const connection = await open();
      const manager = await jetstreamManager(connection);
      await manager.streams.add({ name: queue, subjects: [queue], storage: StorageType.File });
      await manager.consumers.add(queue, {
        durable_name: DURABLE,
        ack_policy: AckPolicy.Explicit,
        max_ack_pending: -1, // what each reader holds is bounded by its own window
      });
      await connection.close();
    },
    producer: async (queue) => new Producer(await open(), queue),
    consumer: async (queue, options, onMessage) => {
      const consumer = new Consumer(await open());
      await consumer.start(queue, options.credit ?? credit, onMessage);
      return consumer;
    },
  };
}

class Producer {
  constructor(connection, queue) {
    this.connection = connection;
    this.stream = jetstream(connection);
    this.queue = queue;
  }

  publish(body, done) {
    this.stream.publish(this.queue, body).then(() => done(null), done);
  }

  close() {
    return this.connection.close();
  }
}

class Consumer {
  constructor(connection) {
    this.connection = connection;
  }

  async start(queue, credit, onMessage) {
    const consumer = await jetstream(this.connection).consumers.get(queue, DURABLE);
    this.messages = await consumer.consume({
      max_messages: credit,
      callback: (message) => onMessage(this, message, message.data),
    });
  }

  ack(message) {
    message.ack();
  }

  async settled() {
    this.messages.stop();
    await this.connection.flush();
  }

  close() {
    return this.connection.close();
  }
}
