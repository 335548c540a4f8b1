// The SDK for a program in another language: JSON lines in, JSON lines out.
//
// tests/behaviour drives one of these for each client, so that its tests run on this SDK, too.
//
//     {"id": 1, "do": "publish", "args": [...]}    →  {"id": 1, "value": ...} or {"id": 1, "error": ...}
//     {"cancel": 1}                                   aborts the signal of call 1
//     {"handled": 7, "error": null}                   what became of a handler's call
//
// Besides answers it says {"state": ...}, {"handle": 7, "of": 1, "message": ...} when a handler is
// to be called, {"abort": 7} when it is to stop, and {"lost": ref} when a message's lease is.
import { createInterface } from "node:readline";
import { connect, Item, PushlaneError } from "../dist/esm/index.js";

let client;
let last = 0;
const messages = new Map();
const subscriptions = new Map();
const handlers = new Map();
const blocks = new Map();
const calls = new Map();

const say = (said) => process.stdout.write(`${JSON.stringify(said)}\n`);

const fromBase64 = (text) => (typeof text === "string" ? Buffer.from(text, "base64") : text);
const options = ({ data, ...rest }) =>
  data === undefined ? rest : { ...rest, data: fromBase64(data) };
/** An exception of another language, as an Error of that name. */
const fault = (error) =>
  error?.name
    ? Object.assign(new Error(error.message), { name: error.name })
    : (error ?? undefined);

/** A message, and a name for it. */
function shown(message) {
  const ref = ++last;
  messages.set(ref, message);
  message.signal.addEventListener("abort", () => message.lost && say({ lost: ref }));
  const { id, body, data, key, headers, attempt, fence, publishedAt, dead } = message;
  return {
    ref, id, body, key, headers, attempt, fence, published_at: publishedAt,
    data: data && Buffer.from(data).toString("base64"),
    dead: dead && { ...dead, deadAt: undefined, dead_at: dead.deadAt },
  }; // prettier-ignore
}

function outcome({ id, duplicate, error }) {
  return { id, duplicate, error: error && errorOf(error) };
}

function errorOf(error) {
  if (!(error instanceof PushlaneError))
    return { name: error?.name, message: String(error?.message) };
  return { code: error.code, message: error.message, retry_ms: error.retryMs ?? null };
}

/** Calls a handler of the other side, and waits for what becomes of it. */
function handle(of, message) {
  return new Promise((resolve, reject) => {
    const { ref, ...rest } = shown(message);
    handlers.set(ref, { resolve, reject });
    message.signal.addEventListener("abort", () => say({ abort: ref }));
    say({ handle: ref, of, message: { ref, ...rest } });
  });
}

const verbs = {
  async connect(_, signal, url, given) {
    client = await connect(url, { ...given, signal });
    client.addEventListener("state", ({ detail }) => say({ state: detail.state }));
    return client.state;
  },
  publish: (_, signal, queue, body, given) =>
    client.publish(queue, body?.value, { ...options(given), signal }),
  async publishMany(_, signal, queue, items) {
    const made = items.map(({ body, item }) => (item ? new Item(options(item)) : body));
    return (await client.publishMany(queue, made, { signal })).map(outcome);
  },
  async subscribe(_, signal, queue, given) {
    const subscription = await client.subscribe(queue, given);
    subscriptions.set(++last, subscription);
    return last;
  },
  async next(_, signal, subscription) {
    const { value, done } = await subscriptions.get(subscription).next({ signal });
    return done ? null : shown(value);
  },
  closeSubscription: (_, signal, subscription) => subscriptions.get(subscription).close({ signal }),
  consume: (id, signal, queue, given) =>
    client.consume(queue, (message) => handle(id, message), { ...given, signal }),
  ack: (_, signal, ref) => messages.get(ref).ack({ signal }),
  nack: (_, signal, ref, error, delayMs) =>
    messages.get(ref).nack(fault(error), { delayMs: delayMs ?? undefined, signal }),
  reject: (_, signal, ref, error) => messages.get(ref).reject(fault(error), { signal }),
  extend: (_, signal, ref, leaseMs) => messages.get(ref).extend(leaseMs, { signal }),
  /** `run` from the outside: what goes on between begin and end is the work. */
  async begin(_, signal, ref) {
    await new Promise((begun, failed) => {
      const work = () =>
        new Promise((resolve, reject) => (blocks.set(ref, { resolve, reject }), begun()));
      const run = messages.get(ref).run(work);
      run.catch(failed);
      blocks.set(`${ref} run`, run);
    });
  },
  async end(_, signal, ref, error) {
    const { resolve, reject } = blocks.get(ref);
    const thrown = fault(error);
    if (thrown) reject(thrown);
    else resolve();
    await blocks.get(`${ref} run`).catch((why) => {
      if (why !== thrown) throw why;
    });
  },
  queues: (_, signal, verb, ...args) => client.queues[verb](...args),
  close: (_, signal, timeoutMs) => client.close({ timeoutMs, signal }),
};

async function call({ id, do: verb, args }) {
  const abort = new AbortController();
  calls.set(id, abort);
  try {
    say({ id, value: (await verbs[verb](id, abort.signal, ...args)) ?? null });
  } catch (error) {
    say({ id, error: errorOf(error) });
  }
  calls.delete(id);
}

for await (const line of createInterface(process.stdin)) {
  const said = JSON.parse(line);
  if (said.do) {
    void call(said);
  } else if (said.cancel) {
    calls.get(said.cancel)?.abort();
  } else {
    const { resolve, reject } = handlers.get(said.handled);
    if (said.error) reject(fault(said.error));
    else resolve();
  }
}
process.exit(0);
