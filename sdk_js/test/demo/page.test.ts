/** The demo's page, driven as a visitor would: everything it shows happens on a real server. */
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { behave, FINE, press, Rig, sum, untilAcked, verdicts } from "./rig.js";

const rig = new Rig();

beforeAll(() => rig.start());
afterEach(() => expect(rig.faults).toEqual([]));
afterAll(() => rig.close());

test("a hundred are published, shared and acked, each key in its order", async () => {
  const page = await rig.open();
  await press(page, "100");
  await press(page, "1");
  await untilAcked(page, 101);
  expect(await sum(page)).toEqual([101, 101, 0, 0, 0]);
  expect(await verdicts(page)).toEqual(FINE);
  const seen = await page.evaluate(() => ({
    checked: demo.book.order.checked,
    done: demo.consumers.map(({ done }) => done),
  }));
  expect(seen.checked).toBe(68); // every third has no key
  expect(Math.min(...seen.done)).toBeGreaterThan(0);
  expect(await page.textContent("#verdict")).toContain("nothing is lost");
  expect(await page.textContent("#order")).toContain("68 deliveries");
});

test("a consumer is killed: its leases run out, and others do its work", async () => {
  const page = await rig.open({ attempts: 20 }); // however long it hangs, nothing dies of it
  await behave(page, "hangs", 1);
  await press(page, "100");
  await page.waitForFunction(() => demo.consumers[1]!.held > 0);
  const kill = page.getByRole("button", { name: "Kill Grace" });
  const held = await kill.evaluate((button: HTMLElement) => {
    button.click();
    return demo.consumers[1]!.slots.filter((uid) => uid !== null);
  });
  expect(held.length).toBeGreaterThan(0);
  await page.locator('.consumer[data-state="killed"]').waitFor();
  await untilAcked(page, 100);
  expect(await sum(page)).toEqual([100, 100, 0, 0, 0]);
  expect(await verdicts(page)).toEqual(FINE);
  const entries = await page.evaluate(
    (uids) => uids.map((uid) => demo.book.entries.get(uid)!),
    held,
  );
  for (const { holder, attempt } of entries) {
    expect(holder).not.toBe(1);
    expect(attempt).toBeGreaterThan(1);
  }
  expect(await page.evaluate(() => demo.consumers[1]!.done)).toBe(0);
  const news = await page.evaluate(() => demo.news.pieces.map(({ text }) => text));
  expect(news).toContainEqual(expect.stringMatching(/^Grace was killed/));
  await press(page, "Start Grace");
  await page.waitForFunction(() => demo.consumers[1]!.state === "open");
});

test("the server is killed while messages come: everybody resumes, nothing is lost", async () => {
  const page = await rig.open({ work: 150 });
  await page.getByRole("radio", { name: "20/s" }).check();
  await page.waitForFunction(() => demo.book.counts.acked > 5);
  await press(page, "kill -9 and restart");
  await page.waitForFunction(() => demo.outages.length === 1);
  await page.waitForFunction(() => demo.consumers.every(({ state }) => state === "open"));
  const before = await page.evaluate(() => demo.book.published);
  await page.waitForFunction((then) => demo.book.published > then, before);
  await page.getByRole("radio", { name: "off" }).check();
  await page.waitForFunction(() => {
    const { book } = demo;
    return !book.counts.sending && book.counts.acked === book.published;
  });
  await untilAcked(page, before);
  const news = await page.evaluate(() => demo.news.pieces.map(({ text }) => text));
  expect(news).toContainEqual(expect.stringMatching(/^The server is back after/));
  const [published, acked, ...left] = await sum(page);
  expect(acked).toBe(published);
  expect(left).toEqual([0, 0, 0]);
  expect(await verdicts(page)).toEqual(FINE);
});

test("what fails comes back, dies, is redriven and done", async () => {
  const page = await rig.open();
  await behave(page, "fails");
  await press(page, "1");
  await page.locator(".dead-row").waitFor();
  expect(await page.textContent(".dead-row")).toContain("3 attempts");
  expect(await sum(page)).toEqual([1, 0, 0, 0, 1]);
  await behave(page, "works");
  await press(page, "one that fails"); // for everybody: but this time there is a bug
  await page.waitForFunction(() => demo.book.counts.dead === 2);
  await press(page, "Fix the bug, redrive");
  await untilAcked(page, 2);
  expect(await sum(page)).toEqual([2, 2, 0, 0, 0]);
  expect(await verdicts(page)).toEqual(FINE);
});

test("the server explains why a message waits", async () => {
  const page = await rig.open({ lease: 20_000 });
  await behave(page, "hangs");
  await press(page, "100");
  const chip = page.locator('.lane[data-lane="acme"] .chip.blocked').first();
  await chip.click();
  await page.locator('#explain .badge[data-state="blocked"]').waitFor();
  const text = await page.innerText("#explain");
  expect(text).toContain("acme 2");
  expect(text).toContain("An earlier message with its key has not ended.");
  expect(text).toMatch(/behind\s+acme 1/);
  await page.locator(".slot .chip").first().click();
  await page.locator('#explain .badge[data-state="leased"]').waitFor();
  expect(await page.innerText("#explain")).toMatch(/lease ends in/);
});

const explained = (page: Page) => page.innerText("#explain .explain-name");

/** Until it is this one that is explained, and it has this state. */
const untilExplained = (page: Page, name: string, state: string) =>
  page.waitForFunction(
    ([name, state]) =>
      document.querySelector("#explain .explain-name")!.textContent === name &&
      document.querySelector("#explain .badge")!.textContent === state,
    [name, state],
  );

test("what is explained is followed to its end", async () => {
  const page = await rig.open({ attempts: 20 }); // however long it hangs, none dies
  await behave(page, "hangs");
  await press(page, "100");
  await page.locator("#explain .badge").waitFor(); // nobody chose: it is one that waits
  const name = await explained(page);
  await behave(page, "works");
  await untilExplained(page, name, "acked");
  await untilAcked(page, 100);
});

test("one that is chosen is followed to its end, and beyond", async () => {
  const page = await rig.open({ attempts: 2 });
  await behave(page, "hangs");
  await press(page, "one that fails");
  await page.locator(".slot .chip").first().click();
  await page.locator("#explain .badge").waitFor();
  const name = await explained(page);
  await behave(page, "works");
  await untilExplained(page, name, "dead");
  await press(page, "Fix the bug, redrive");
  await untilExplained(page, name, "acked");
});

test("a reload finds what was there", async () => {
  const page = await rig.open({ attempts: 20 });
  await behave(page, "hangs");
  await press(page, "100");
  await page.waitForFunction(() => demo.book.published === 100);
  const queue = await page.evaluate(() => demo.queue);
  await page.reload();
  await page.waitForSelector("body[data-ready]");
  expect(await page.evaluate(() => demo.queue)).toBe(queue);
  await untilAcked(page, 100);
  expect(await sum(page)).toEqual([100, 100, 0, 0, 0]);
  expect(await verdicts(page)).toEqual(FINE);
});
