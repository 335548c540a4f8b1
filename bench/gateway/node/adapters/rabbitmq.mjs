// RabbitMQ's Web-STOMP plugin: persistent messages, a receipt (a publisher confirm) for each, acks
// one by one, a prefetch count. `queue_type` in the spec is classic or quorum.

import { Client } from "@stomp/stompjs";
import WebSocket from "ws";

export async function connect({ url, queue_type, login }) {
  const open = () => openClient(url, login);
  return {
    queue: async (queue) => {
      const client = await open(); // a subscription makes the queue; then it is used as it is
      const headers = { "x-queue-type": queue_type, ack: "client-individual", id: "make" };
      client.subscribe(`/queue/${queue}`, () => {}, headers);
      await receipt(client, (headers) => client.unsubscribe("make", headers));
      await client.deactivate();
    },
    producer: async (queue) => new Producer(await open(), queue),
    consumer: async (queue, { credit }, onMessage) =>
      new Consumer(await open(), queue, credit, onMessage),
  };
}

async function openClient(url, { user, password }) {
  const client = new Client({
    webSocketFactory: () => new WebSocket(url, ["v12.stomp"], { perMessageDeflate: false }),
    connectHeaders: { login: user, passcode: password },
    heartbeatIncoming: 0,
    heartbeatOutgoing: 0,
    reconnectDelay: 0,
    debug: () => {},
  });
  await new Promise((resolve, reject) => {
    client.onConnect = resolve;
    client.onStompError = (frame) => reject(new Error(frame.headers.message + frame.body));
    client.onWebSocketError = (event) => reject(new Error(event.message));
    client.activate();
  });
  client.onStompError = (frame) => {
    throw new Error(frame.headers.message + frame.body);
  };
  return client;
}

let receipts = 0;

function receipt(client, send) {
  return new Promise((resolve) => {
    const id = `r${++receipts}`;
    client.watchForReceipt(id, resolve);
    send({ receipt: id });
  });
}

class Producer {
  constructor(client, queue) {
    this.client = client;
    this.destination = `/amq/queue/${queue}`;
  }

  publish(body, done) {
    const id = `r${++receipts}`;
    this.client.watchForReceipt(id, () => done(null));
    const headers = { receipt: id, persistent: "true" };
    this.client.publish({ destination: this.destination, headers, body });
  }

  close() {
    return this.client.deactivate();
  }
}

class Consumer {
  constructor(client, queue, credit, onMessage) {
    this.client = client;
    this.subscription = client.subscribe(
      `/amq/queue/${queue}`,
      (message) => onMessage(this, message, message.body),
      { ack: "client-individual", "prefetch-count": String(credit) },
    );
  }

  ack(message) {
    message.ack();
  }

  settled() {
    return receipt(this.client, (headers) => this.subscription.unsubscribe(headers));
  }

  close() {
    return this.client.deactivate();
  }
}
