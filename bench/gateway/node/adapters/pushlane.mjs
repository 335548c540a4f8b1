// Pushlane over WebSocket, JSON. What is called in one tick goes into one frame: publishes into one
// `publish`, acks into one `ack` with runs of receipts.

import WebSocket from "ws";

const BATCH = 1000;

// Frames sent and received, to see how many messages share one.
const frames = { publish: 0, deliver: 0, ack: 0 };

export async function connect({ url }) {
  return {
    frames,
    queue: async () => {},
    producer: async (queue) => new Producer(await open(url), queue),
    consumer: async (queue, options, onMessage) => {
      const session = await open(url);
      const consumer = new Consumer(session, onMessage);
      await consumer.subscribe(queue, options.credit);
      return consumer;
    },
  };
}

async function open(url) {
  const socket = new WebSocket(url.replace(/^http/, "ws") + "/v1/ws", "pushlane.v1.json", {
    perMessageDeflate: false,
    skipUTF8Validation: true,
  });
  await new Promise((resolve, reject) => {
    socket.once("open", resolve);
    socket.once("error", reject);
  });
  const session = new Session(socket);
  await session.hello();
  return session;
}

class Session {
  constructor(socket) {
    this.socket = socket;
    this.onDeliver = null;
    this.waiting = new Map();
    this.welcomed = null;
    this.nextId = 1;
    this.closing = false;
    socket.on("message", (data) => this.take(JSON.parse(data)));
    socket.on("close", (code) => {
      if (!this.closing) throw new Error(`the server closed with ${code}`);
    });
  }

  hello() {
    this.socket.send(`{"op":"hello","client":"bench"}`);
    return new Promise((resolve) => (this.welcomed = resolve));
  }

  // Send a request; its answer is handed to `answered`.
  ask(frame, answered) {
    const id = this.nextId++;
    this.waiting.set(id, answered);
    this.socket.send(frame(id));
  }

  request(frame, wanted) {
    return new Promise((resolve, reject) =>
      this.ask(frame, (answer) =>
        answer.op === wanted ? resolve(answer) : reject(new Error(JSON.stringify(answer))),
      ),
    );
  }

  take(frame) {
    switch (frame.op) {
      case "deliver":
        frames.deliver++;
        this.onDeliver(frame.messages);
        break;
      case "published":
      case "subscribed":
      case "done":
        this.answer(frame);
        break;
      case "welcome":
        this.welcomed(frame);
        break;
      case "beat":
        break;
      case "error":
        if (frame.id) this.answer(frame);
        else throw new Error(JSON.stringify(frame));
        break;
      default:
        throw new Error(`unexpected ${JSON.stringify(frame)}`);
    }
  }

  answer(frame) {
    const answered = this.waiting.get(frame.id);
    this.waiting.delete(frame.id);
    answered(frame);
  }

  close() {
    this.closing = true;
    this.socket.close(1000);
  }
}

class Producer {
  constructor(session, queue) {
    this.session = session;
    this.head = `,"to":${JSON.stringify(queue)},"messages":[{"body":`;
    this.bodies = [];
    this.dones = [];
    this.flush = () => this.send();
  }

  // `done(error)` is called when the message is durable, or refused.
  publish(body, done) {
    if (this.bodies.push(body) === 1) setImmediate(this.flush);
    this.dones.push(done);
    if (this.bodies.length === BATCH) this.send();
  }

  send() {
    if (this.bodies.length === 0) return;
    const { bodies, dones, head } = this;
    this.bodies = [];
    this.dones = [];
    frames.publish++;
    this.session.ask(
      (id) => `{"op":"publish","id":${id}${head}${bodies.join('},{"body":')}}]}`,
      (answer) => this.answered(answer, dones),
    );
  }

  answered(answer, dones) {
    const error = answer.op !== "published" || answer.failed ? JSON.stringify(answer) : null;
    for (const done of dones) done(error);
  }

  close() {
    this.session.close();
  }
}

class Consumer {
  constructor(session, onMessage) {
    this.session = session;
    this.sub = 0;
    this.prefix = "";
    this.runs = []; // receipts of this tick: [prefix, first, last]
    this.flush = () => this.sendAcks();
    session.onDeliver = (messages) => {
      for (const message of messages) onMessage(this, message, message.body);
    };
  }

  async subscribe(queue, credit) {
    const name = JSON.stringify(queue);
    const answer = await this.session.request(
      (id) => `{"op":"subscribe","id":${id},"from":${name},"credit":${credit}}`,
      "subscribed",
    );
    this.sub = answer.sub;
  }

  ack(message) {
    const receipt = message.receipt;
    const dot = receipt.lastIndexOf(".");
    const number = +receipt.slice(dot + 1);
    const run = this.runs.at(-1);
    if (run !== undefined && number === run.last + 1 && receipt.startsWith(run.prefix)) {
      run.last = number;
      return;
    }
    if (run === undefined) setImmediate(this.flush);
    this.runs.push({ prefix: receipt.slice(0, dot + 1), first: number, last: number });
  }

  sendAcks() {
    if (this.runs.length === 0) return;
    const receipts = this.runs.map(({ prefix, first, last }) =>
      first === last ? `"${prefix}${first}"` : `"${prefix}${first}-${last}"`,
    );
    this.runs = [];
    frames.ack++;
    this.session.socket.send(`{"op":"ack","sub":${this.sub},"receipts":[${receipts}]}`);
  }

  // Resolves when everything acked so far is durable.
  async settled() {
    this.sendAcks();
    const sub = this.sub;
    await this.session.request((id) => `{"op":"unsubscribe","id":${id},"sub":${sub}}`, "done");
  }

  // Read no more, as a process that is stuck, with all that another queue has to push on top.
  stick(queue, credit) {
    const { socket } = this.session;
    socket.pause();
    const id = this.session.nextId++;
    const name = JSON.stringify(queue);
    socket.send(`{"op":"subscribe","id":${id},"from":${name},"credit":${credit}}`);
  }

  cut() {
    this.session.closing = true;
    this.session.socket.removeAllListeners("message"); // what it had not read, it never will
    this.session.socket.terminate();
  }

  close() {
    this.session.close();
  }
}
