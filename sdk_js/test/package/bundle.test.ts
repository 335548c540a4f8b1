/** The bundle for browsers stays small, and says on the wire what it should. */
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { BUNDLE } from "../browser/site.js";

const MOST_BYTES = 12_600;
const bundle = readFileSync(BUNDLE, "utf8");

test("minified and gzipped", () => {
  expect(gzipSync(readFileSync(BUNDLE), { level: 9 }).length).toBeLessThanOrEqual(MOST_BYTES);
});

test("it needs nothing else", () => {
  expect(bundle).not.toMatch(/\bfrom"|require\(|import\(/);
});

/** Names of fields that are made of names in the sources, and so could be shortened by mistake. */
const NAMES = `op id token client producer resume session held to messages seq from credit ack start
  lease_ms sub receipts delay_ms error dead frames pipe n close after wait_ms`;

test.each(NAMES.split(/\s+/))("%s is said in full", (name) => {
  expect(bundle).toMatch(new RegExp(`[{,]${name}[:,}]|"${name}":|\\.${name}=`));
});
