/** A site with the bundle, and a real Chromium to look at it. */
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { type Browser, chromium, type Page } from "playwright-core";
import type * as Sdk from "../../src/index.js";

declare global {
  var pushlane: typeof Sdk;
  var client: Sdk.Client;
  var got: number[];
}

export const BUNDLE = new URL("../../dist/pushlane.min.js", import.meta.url);
const PAGE = `<!doctype html><title>Pushlane</title><script type="module">
import * as pushlane from "/pushlane.min.js";
globalThis.pushlane = pushlane;
</script>`;

/** Debian's Chromium; CHROMIUM names another. */
export function findChromium(): string {
  const named = process.env["CHROMIUM"];
  if (named) return named;
  const found = ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find((path) => existsSync(path));
  return found ?? execFileSync("sh", ["-c", "command -v chromium google-chrome"]).toString().trim();
}

export class Site {
  private pages = new Map<string, [type: string, text: string]>([["/", ["text/html", PAGE]]]);
  private server: Server = createServer((request, answer) => {
    const [type, text] = this.pages.get(request.url ?? "") ?? ["text/plain", undefined];
    answer.writeHead(text === undefined ? 404 : 200, { "Content-Type": type });
    answer.end(text);
  });
  private browser!: Browser;
  /** What pages complained of. */
  readonly faults: string[] = [];

  get origin(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  serve(path: string, type: string, text: string): void {
    this.pages.set(path, [type, text]);
  }

  async start(): Promise<void> {
    this.serve("/pushlane.min.js", "text/javascript", await readFile(BUNDLE, "utf8"));
    this.server.listen(0, "127.0.0.1");
    await once(this.server, "listening");
    this.browser = await chromium.launch({
      executablePath: findChromium(),
      args: ["--no-sandbox", "--disable-background-networking", "--disable-dev-shm-usage"],
    });
  }

  /** A tab with a page of ours. */
  async visit(path: string): Promise<Page> {
    const context = await this.browser.newContext();
    const page = await context.newPage();
    page.setDefaultTimeout(120_000); // on a busy machine everything takes longer
    page.on("pageerror", (error) => this.faults.push(String(error)));
    await page.goto(this.origin + path);
    return page;
  }

  /** A tab with the SDK loaded. */
  async open(): Promise<Page> {
    const page = await this.visit("/");
    await page.waitForFunction(() => globalThis.pushlane !== undefined);
    return page;
  }

  /** A tab with a client. */
  async connect(url: string, options: Sdk.ConnectOptions = {}): Promise<Page> {
    const page = await this.open();
    await page.evaluate(
      async ([to, how]) => {
        globalThis.client = await pushlane.connect(to, how);
      },
      [url, options] as const,
    );
    return page;
  }

  async close(): Promise<void> {
    await this.browser?.close();
    this.server.close();
  }
}
