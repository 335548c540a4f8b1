/** `make demo` without make: its process, and a real Chromium that looks at the page. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";
import { vi } from "vitest";
import { findChromium } from "../browser/site.js";
import type { Demo } from "../../demo/demo.js";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const PAGE = fileURLToPath(new URL("../../demo", import.meta.url));
/** Quick enough for a test. */
const QUICK = { lease: 2000, work: 40, backoff: 200 };
/** For one wait; a whole story may take longer than other tests. */
const PATIENCE_MS = 60_000;
vi.setConfig({ testTimeout: 2 * PATIENCE_MS });

declare global {
  var demo: Demo;
}

/** An old page would be a test of something else. */
function checkBuilt(): void {
  const age = (path: string) => (existsSync(path) ? statSync(path).mtimeMs : 0);
  const built = age(join(PAGE, "dist", "index.html"));
  const sources = readdirSync(PAGE, { recursive: true, encoding: "utf8" })
    .filter((name) => !name.startsWith("dist"))
    .map((name) => join(PAGE, name))
    .filter((path) => statSync(path).isFile());
  const newer = sources.filter((path) => age(path) > built);
  if (newer.length)
    throw new Error(`run \`npm run demo\`: newer than the page: ${newer.join(", ")}`);
}

export class Rig {
  url = "";
  /** What pages complained of, and what they loaded from elsewhere. */
  readonly faults: string[] = [];
  private child!: ChildProcess;
  private browser!: Browser;
  private said = "";

  /** With `options` of the demo. */
  async start(...options: string[]): Promise<void> {
    checkBuilt();
    const command = ["-m", "tools.demo", "--port", "0", ...options];
    this.child = spawn(`${ROOT}/.venv/bin/python`, command, {
      cwd: ROOT,
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.child.stderr!.on("data", (data) => (this.said += data));
    const launched = chromium.launch({
      executablePath: findChromium(),
      args: ["--no-sandbox", "--disable-background-networking", "--disable-dev-shm-usage"],
    });
    for await (const line of createInterface(this.child.stdout!)) {
      if (!line.startsWith("ready on ")) continue;
      this.url = line.slice("ready on ".length).trim();
      break;
    }
    this.browser = await launched;
    if (!this.url) throw new Error(`the demo did not start: ${this.said}`);
    this.child.stdout!.resume();
  }

  /** A tab with the page; each has a queue of its own. */
  async open(settings: object = {}, context: BrowserContextOptions = {}): Promise<Page> {
    const page = await (await this.browser.newContext(context)).newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    page.on("pageerror", (error) => this.faults.push(String(error)));
    page.on("request", (request) => {
      const { hostname, protocol } = new URL(request.url());
      if (hostname !== "127.0.0.1" && protocol !== "data:") this.faults.push(request.url());
    });
    const all = Object.entries({ ...QUICK, ...settings }).map(([name, value]) => [
      name,
      `${value}`,
    ]);
    const search = new URLSearchParams(all);
    await page.goto(`${this.url}/?${search}`);
    await page.waitForSelector("body[data-ready]");
    return page;
  }

  async close(): Promise<void> {
    await this.browser?.close();
    if (!this.child || this.child.exitCode !== null) return;
    this.child.kill("SIGINT");
    await once(this.child, "exit");
  }
}

/** Press the button with this name. */
export const press = (page: Page, name: string): Promise<void> =>
  page.getByRole("button", { name, exact: true }).click();

/** Have consumers behave so; all of them, or one. */
export async function behave(page: Page, mode: string, which?: number): Promise<void> {
  const cards = await page.locator(".consumer").all();
  for (const [at, card] of cards.entries()) {
    if (which === undefined || which === at) await card.getByRole("radio", { name: mode }).check();
  }
}

/** Wait until so many are done, and the page has drawn it; else say how it stands. */
export async function untilAcked(page: Page, count: number): Promise<void> {
  try {
    await page.waitForFunction((all) => demo.book.counts.acked >= all, count);
  } catch (fault) {
    throw new Error(`not ${count} acked: ${await page.evaluate(standing)}`, { cause: fault });
  }
  await page.waitForFunction(
    () => document.getElementById("sum-acked")!.textContent === String(demo.book.counts.acked),
  );
}

function standing(): string {
  const { book, watch, consumers, news } = demo;
  const left = [...book.lanes.values()].flatMap((lane) => [...lane]).slice(0, 5);
  const states = consumers.map(({ name, state, slots }) => ({ name, state, slots }));
  const told = news.pieces.map(({ text }) => text);
  return JSON.stringify({ counts: book.counts, stats: watch.stats, states, left, told }, null, 1);
}

/** The sum as it stands on the page. */
export const sum = (page: Page): Promise<number[]> =>
  page.evaluate(() =>
    ["published", "acked", "flight", "waiting", "dead"].map((part) =>
      Number(document.getElementById(`sum-${part}`)!.textContent!.replace(",", "")),
    ),
  );

/** What must be true at the end of every story. */
export async function verdicts(page: Page): Promise<object> {
  // what the server counts after this moment
  const { rounds } = await page.evaluate(() => demo.watch.audit);
  await page.waitForFunction((then) => demo.watch.audit.rounds > then + 1, rounds);
  return page.evaluate(() => {
    const { book, watch } = demo;
    const { ready, leased, reserved, retrying, blocked, stored } = watch.stats!;
    return {
      verdict: watch.audit.verdict,
      alarms: watch.audit.alarms,
      outOfOrder: book.order.faults,
      ackedTwice: book.ackedTwice,
      left: ready + leased + reserved + retrying + blocked + stored,
    };
  });
}

export const FINE = { verdict: "exact", alarms: 0, outOfOrder: [], ackedTwice: 0, left: 0 };
