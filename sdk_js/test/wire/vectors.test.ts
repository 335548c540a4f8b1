/** The tables of the wire vectors: frames, errors, close codes, backoff, receipts. */
import { describe, expect, test } from "vitest";
import { backoffMs } from "../../src/core/backoff.js";
import { ClientCore } from "../../src/core/client.js";
import { encode, type OutFrame } from "../../src/core/frame.js";
import { Publication } from "../../src/core/publication.js";
import {
  canRetry,
  closeCodeOf,
  codeOfStatus,
  errorFor,
  isRepeated,
} from "../../src/wire/errors.js";
import { compress, expand, parse } from "../../src/wire/receipts.js";
import { CLOSES } from "../../src/wire/tables.js";
import { fromBase64 } from "../../src/wire/text.js";
import { vectors } from "../vectors.js";

const { frames } = vectors<{ frames: { from: string; text: string; encoded: string }[] }>("frames");
const ticket = { resolve() {}, reject() {} };

/** A message of the wire as a user would have published it. */
function publicationOf(message: Record<string, any>): Publication {
  const { body, data, delay_ms, ttl_ms, event_at, seq, ...rest } = message;
  const bytes = data === undefined ? undefined : fromBase64(data);
  const options = { ...rest, data: bytes, delayMs: delay_ms, ttlMs: ttl_ms, eventAt: event_at };
  const publication = new Publication(body, options, ticket);
  publication.seq = seq ?? 1;
  return publication;
}

describe("frames", () => {
  test.each(frames.filter(({ from }) => from === "client"))("$text", ({ text, encoded }) => {
    const frame = JSON.parse(text);
    if (frame.op !== "publish") {
      expect(JSON.parse(encode(frame as OutFrame))).toEqual(JSON.parse(encoded));
      return;
    }
    const said = JSON.parse(encode({ ...frame, messages: frame.messages.map(publicationOf) }));
    const numbered = frame.messages.map((one: object) => ({ seq: 1, ...one }));
    expect(said).toEqual({ ...frame, messages: numbered });
  });

  test.each(frames.filter(({ from }) => from === "server"))("$text", ({ text }) => {
    // Whatever a server says at whatever time: the client goes on.
    const core = new ClientCore({ producer: "p", random: () => 0.5 });
    core.start(0);
    core.connected(1, null, 0);
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
    const error = errorFor(row.code, "m", 5);
    expect(canRetry(error)).toBe(row.retry);
    expect(closeCodeOf(error)).toBe(row.close_code);
    expect(isRepeated(error)).toBe(row.repeated_by_client);
    if (row.code !== "conflict") expect(codeOfStatus(row.http_status)).toBe(row.code);
  }
  for (const row of closes) expect(CLOSES[row.code]).toEqual([row.reason, row.reconnect]);
});

test("a code from a newer server counts as internal", () => {
  expect(isRepeated(errorFor("brand_new", "m"))).toBe(true);
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
    expect(() => parse(text)).toThrow("is no receipt");
  });
});
