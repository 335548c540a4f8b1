/** A pipe, with a fetch that does what a script says. */
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { DEFAULTS } from "../../src/core/settings.js";
import type { Line } from "../../src/core/line.js";
import type { Connection } from "../../src/transport/connection.js";
import { openPipe } from "../../src/transport/pipe.js";
import { limitsOf } from "../../src/wire/limits.js";
import { eventually } from "../live/help.js";

interface Asked {
  body: any;
  headers: Record<string, string>;
  answer(value: unknown, status?: number): void;
  /** The connection breaks. */
  cut(): void;
}

let asked: Asked[];
let heard: unknown[];
let pipe: Connection;

const fakeFetch = (url: string, { body, signal, headers }: RequestInit) =>
  new Promise<Response>((resolve, reject) => {
    expect(url).toBe("http://h/v1/pipe");
    signal!.addEventListener("abort", () => reject(signal!.reason as Error));
    asked.push({
      body: JSON.parse(body as string),
      headers: headers as Record<string, string>,
      answer: (value, status = 200) => resolve(new Response(JSON.stringify(value), { status })),
      cut: () => reject(new TypeError("fetch failed")),
    });
  });

/** The next request that goes out. */
async function next(): Promise<Asked> {
  await eventually(() => asked.length > 0);
  return asked.shift()!;
}

/** No request goes out. */
async function silent(ms = 50): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, ms));
  expect(asked.map(({ body }) => body)).toEqual([]);
}

/** A pipe that is open; its first receive. */
async function opened(): Promise<Asked> {
  pipe.send('{"op":"hello"}');
  const open = await next();
  expect(open.body).toEqual({ frames: [{ op: "hello" }] });
  expect(open.headers["Pushlane-Pipe"]).toBeUndefined();
  open.answer({ pipe: "P" });
  const receive = await next();
  expect(receive.headers["Pushlane-Pipe"]).toBe("P");
  return receive;
}

beforeEach(() => {
  asked = [];
  heard = [];
  vi.stubGlobal("fetch", fakeFetch);
  const settings = { ...DEFAULTS, retryBaseMs: 1, retryMaxMs: 2, hangupMs: 100 };
  const limits = limitsOf({ frame_bytes: 400, wait_ms: 5000 });
  const line = { settings, limits, random: Math.random } as unknown as Line;
  const onHeard = (frames: unknown[]) => heard.push(...frames);
  pipe = openPipe("http://h", { onOpen() {}, onHeard }, line);
});
afterEach(() => {
  pipe.hangUp(1000);
  vi.unstubAllGlobals();
});

describe("sends", () => {
  test("one at a time, numbered; what gathers goes together, up to a bound", async () => {
    await opened();
    pipe.send("1");
    pipe.send("2");
    const first = await next();
    expect(first.body).toEqual({ frames: [1, 2], pipe: "P", n: 1 });
    const long = "x".repeat(120); // more than a quarter of a frame
    for (const text of ["3", "4", JSON.stringify(long), "5"]) pipe.send(text);
    await silent();
    first.answer({});
    const second = await next();
    expect(second.body).toEqual({ frames: [3, 4], pipe: "P", n: 2 });
    second.answer({});
    expect((await next()).body).toEqual({ frames: [long, 5], pipe: "P", n: 3 });
  });

  test("one that is cut goes once more with its number, then the pipe is lost", async () => {
    await opened();
    pipe.send("1");
    (await next()).cut();
    const again = await next();
    expect(again.body).toEqual({ frames: [1], pipe: "P", n: 1 });
    again.answer({});
    pipe.send("2");
    (await next()).cut();
    (await next()).cut();
    expect((await pipe.over).error).toMatchObject({ code: "connection_lost" });
    await silent();
  });

  test("the first that is cut does not go again", async () => {
    pipe.send("1");
    (await next()).cut();
    expect((await pipe.over).error).toMatchObject({ code: "connection_lost" });
    await silent();
  });
});

describe("receives", () => {
  test("one after the other, each says what came last", async () => {
    const first = await opened();
    expect(first.body).toEqual({ pipe: "P", after: 0, wait_ms: 5000 });
    first.answer({ n: 1, frames: [{ op: "welcome" }, { op: "beat" }] });
    const second = await next();
    expect(second.body).toMatchObject({ after: 1 });
    second.answer({ n: 1, frames: [] });
    expect((await next()).body).toMatchObject({ after: 1 });
    expect(heard).toEqual([{ op: "welcome" }, { op: "beat" }]);
  });

  test("one that is cut is asked again; a few in a row, and the pipe is lost", async () => {
    let receive = await opened();
    for (let n = 0; n < 3; n += 1) {
      receive.cut();
      receive = await next();
      expect(receive.body).toMatchObject({ after: 0 });
    }
    receive.answer({ n: 1, frames: [{}] });
    for (let n = 0; n < 4; n += 1) (await next()).cut();
    expect((await pipe.over).error).toMatchObject({ code: "connection_lost" });
    await silent();
  });

  test("the server closes with a code, after its last frames", async () => {
    const receive = await opened();
    const close = { code: 1008, reason: "unauthorized" };
    receive.answer({ n: 1, frames: [{ op: "error" }], close });
    expect(await pipe.over).toEqual(close);
    expect(heard).toEqual([{ op: "error" }]);
    await silent();
  });
});

describe("refusals", () => {
  const error = { code: "forbidden", message: "no", retry_ms: null };

  test("of the first request are final as they say", async () => {
    pipe.send("1");
    (await next()).answer({ error }, 403);
    expect((await pipe.over).error).toMatchObject({ code: "forbidden", message: "no" });
  });

  test("of later ones are a lost connection: a new pipe may do", async () => {
    const receive = await opened();
    receive.answer({ error: { ...error, code: "not_found", retry_ms: 70 } }, 404);
    expect((await pipe.over).error).toMatchObject({ code: "connection_lost", retryMs: 70 });
  });

  test("a page to log in is no server", async () => {
    pipe.send("1");
    (await next()).answer("<html>");
    expect((await pipe.over).error).toMatchObject({ code: "unavailable" });
  });
});

describe("hanging up", () => {
  test("says the last frames and the close in one request", async () => {
    await opened();
    pipe.send("1");
    pipe.send("2");
    pipe.hangUp(1000);
    const last = await next();
    expect(last.body).toEqual({ frames: [1, 2], pipe: "P", n: 1, close: 1000 });
    last.answer({});
    expect(await pipe.over).toEqual({});
    await silent();
  });

  test("waits for the send that is under way, and has no number without frames", async () => {
    await opened();
    pipe.send("1");
    const first = await next();
    pipe.hangUp(1001);
    await silent(20);
    first.answer({});
    expect((await next()).body).toEqual({ pipe: "P", close: 1001 });
  });

  test("takes no longer than it may", async () => {
    await opened();
    pipe.hangUp(1000);
    await next();
    expect(await pipe.over).toEqual({});
  });

  test("before it is open is the end", async () => {
    pipe.send("1");
    await next();
    pipe.hangUp(1000);
    expect(await pipe.over).toEqual({});
  });
});
