/** The tables of the wire vectors: frames, errors, close codes, backoff, receipts. */
import { describe, expect, test } from "vitest";
import { makeCore } from "../../src/core/client.js";
import { Publication } from "../../src/core/publication.js";
import { backoffMs } from "../../src/core/retry.js";
import { DEFAULTS } from "../../src/core/settings.js";
import { canRetry, errorOfStatus, isRepeated, PushlaneError } from "../../src/wire/errors.js";
import { compress, expand, parse } from "../../src/wire/receipts.js";
import { CLOSES } from "../../src/wire/tables.js";
import { fromBase64 } from "../../src/wire/text.js";
import { Rig } from "../core/rig.js";
import { vectors } from "../vectors.js";

const { frames } = vectors<{ frames: { from: string; text: string }[] }>("frames");
const ticket = { resolve() {}, reject() {} };

/** A message of the wire as a user would have published it. */
function publicationOf(message: Record<string, any>): Publication {
  const { body, data, delay_ms, ttl_ms, event_at, seq, ...rest } = message;
  const bytes = data === undefined ? undefined : fromBase64(data);
  const options = { ...rest, data: bytes, delayMs: delay_ms, ttlMs: ttl_ms, eventAt: event_at };
  return new Publication(body, options, ticket);
}

describe("frames", () => {
  const published = frames.filter(({ from, text }) => from === "client" && /"publish"/.test(text));

  test.each(published)("$text", ({ text }) => {
    const { to, messages } = JSON.parse(text);
    const rig = Rig.open();
    for (const one of messages) rig.core.producer.publish(to, publicationOf(one), 0);
    const [said] = rig.frames();
    const numbered = messages.map((one: object, at: number) => ({ ...one, seq: at + 1 }));
    expect(said).toEqual({ op: "publish", id: 1, to, messages: numbered });
  });

  test.each(frames.filter(({ from }) => from === "server"))("$text", ({ text }) => {
    // Whatever a server says at whatever time: the client goes on.
    const shell = { dial() {}, probe() {}, send() {}, hangUp() {}, changed() {} };
    const core = makeCore(shell, { producer: "p", random: () => 0.5, settings: DEFAULTS });
    core.start(0);
    core.connected(1, undefined);
    for (const one of frames) {
      if (one.text.includes('"welcome"')) core.received(1, [JSON.parse(one.text)], 1);
    }
    core.received(1, [JSON.parse(text)], 2);
    core.flush(3);
    // Only a goaway makes it leave, to come back.
    expect(core.state).toBe(text.includes('"goaway"') ? "connecting" : "open");
  });
});

test("errors", () => {
  const { errors, closes } = vectors<{ errors: any[]; closes: any[] }>("errors");
  for (const row of errors) {
    const error = new PushlaneError(row.code, "m", 5);
    expect(canRetry(error)).toBe(row.retry);
    expect(isRepeated(error)).toBe(row.repeated_by_client);
    expect(row.close_code).toBe(row.code === "unauthorized" ? 1008 : null);
    if (row.code !== "conflict") expect(errorOfStatus(row.http_status).code).toBe(row.code);
  }
  for (const row of closes) {
    const isFinal = !row.reconnect && row.code !== 1000;
    expect(CLOSES[row.code]).toBe(isFinal ? row.reason : undefined);
  }
});

test("a code from a newer server counts as internal", () => {
  expect(isRepeated(new PushlaneError("brand_new", "m"))).toBe(true);
});

test("a status that nobody knows is the nearest error", () => {
  expect([502, 504, 418].map((status) => errorOfStatus(status).code)).toEqual([
    "unavailable",
    "unavailable",
    "bad_request",
  ]);
});

test("backoff", () => {
  const { backoff } = vectors<{ backoff: any[] }>("backoff");
  for (const { base_ms, max_ms, attempt, draw, delay_ms } of backoff) {
    expect(backoffMs(base_ms, max_ms, attempt, draw)).toBe(delay_ms);
  }
});

describe("receipts", () => {
  const { runs, not_receipts } = vectors<{ runs: any[]; not_receipts: string[] }>("receipts");

  test.each(runs)("$name", ({ prefix, numbers, first, last, runs }) => {
    const all = numbers ?? Array.from({ length: last - first + 1 }, (_, at) => first + at);
    expect(compress(prefix, all)).toEqual(runs);
    expect([...expand(runs)]).toEqual(all.map((number: number) => `${prefix}.${number}`));
  });

  test.each(not_receipts)("%j is none", (text) => {
    expect(parse(text)).toEqual(["", 1, 0]);
    expect([...expand([text])]).toEqual([]);
  });
});
