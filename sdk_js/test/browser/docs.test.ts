/** The page of docs/javascript.md, as it stands there, in a real Chromium. */
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect } from "../../src/index.js";
import { Server } from "../live/server.js";
import { Site } from "./site.js";

const DOCS = new URL("../../../docs/javascript.md", import.meta.url);
const server = new Server();
const site = new Site();

beforeAll(async () => {
  await Promise.all([site.start(), server.start()]);
});
afterAll(async () => {
  await site.close();
  await server.close();
});

test("the page shows what is published", async () => {
  const [, html] = /```html\n(.*?)```/s.exec(readFileSync(DOCS, "utf8"))!;
  const key = await server.makeKey();
  site.serve("/", "text/html", html!.replace("ws://127.0.0.1:8420", server.url));
  site.serve("/queue-token", "text/plain", key);
  // Where there are keys, origins must be allowed.
  await server.stop("SIGTERM");
  server.allow(site.origin);
  await server.start();
  const producer = await connect(server.url, { token: key });
  await producer.publish("page-orders", { order: 17 });
  const page = await site.visit("/");
  await page.waitForSelector("li");
  expect(await page.textContent("#orders")).toBe("17");
  await producer.publish("page-orders", { order: "<b>18</b>" });
  await page.waitForSelector("li:nth-child(2)");
  expect(await page.textContent("li:nth-child(2)")).toBe("<b>18</b>");
  await server.stop("SIGKILL");
  await page.waitForFunction(() => document.title === "Orders (connecting)");
  await server.start();
  await page.waitForFunction(() => document.title === "Orders (open)");
  await producer.close({ timeoutMs: 1000 });
  expect(site.faults).toEqual([]);
});
