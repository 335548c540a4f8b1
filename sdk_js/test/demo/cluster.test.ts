/** The demo on a cluster: a node is killed from the page, and the others go on. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { FINE, press, Rig, sum, untilAcked, verdicts } from "./rig.js";

/** Cassandra and three servers, on a machine that may be busy. */
const START_MS = 600_000;

const rig = new Rig();

beforeAll(() => rig.start("--nodes", "3"), START_MS);
afterAll(() => rig.close(), START_MS);

test(
  "a node is killed while messages come: the others take over, nothing is lost",
  async () => {
    const page = await rig.open({ work: 150, attempts: 20 });
    page.setDefaultTimeout(START_MS);
    await page.getByRole("radio", { name: "20/s" }).check();
    await page.waitForFunction(() => demo.book.counts.acked > 5);
    await press(page, "kill -9 node-2");
    expect(await page.getByRole("button", { name: "kill -9 node-2" }).isDisabled()).toBe(true);
    const acked = await page.evaluate(() => demo.book.counts.acked);
    await page.waitForFunction((then) => demo.book.counts.acked > then + 20, acked);
    await page.waitForFunction(() =>
      demo.news.pieces.some(({ text }) => text.startsWith("node-2 is back")),
    );
    await page.getByRole("radio", { name: "off" }).check();
    await page.waitForFunction(() => {
      const { book } = demo;
      return !book.counts.sending && book.counts.acked === book.published;
    });
    await untilAcked(page, 26);
    const [published, done, ...left] = await sum(page);
    expect(done).toBe(published);
    expect(left).toEqual([0, 0, 0]);
    expect(await verdicts(page)).toEqual(FINE);
    expect(rig.faults).toEqual([]);
  },
  START_MS,
);
