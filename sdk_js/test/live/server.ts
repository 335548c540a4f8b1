/** A real server: `pushlane serve` as a child process, with a folder of its own. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const PUSHLANE = fileURLToPath(new URL("../../../.venv/bin/pushlane", import.meta.url));
const START_MS = 120_000; // shared machines have slow moments; a test has a time of its own

const environment = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => !name.startsWith("PUSHLANE_")),
);

export class Server {
  readonly folder = mkdtempSync(join(tmpdir(), "pushlane-js-"));
  url = "";
  private child: ChildProcess | undefined;
  private listen = "127.0.0.1:0";
  private said = "";

  constructor(private options: string[] = []) {}

  get port(): number {
    return Number(new URL(this.url).port);
  }

  /** Start it; started again, it has the same port and the same data. */
  async start(): Promise<this> {
    const args = ["serve", "--listen", this.listen, "--data", "data", ...this.options];
    const child = (this.child = spawn(PUSHLANE, args, {
      cwd: this.folder,
      env: environment,
      stdio: ["ignore", "pipe", "pipe"],
    }));
    child.stderr!.on("data", (data) => (this.said += data));
    const timer = setTimeout(() => child.kill("SIGKILL"), START_MS);
    for await (const line of createInterface(child.stdout!)) {
      if (!line.startsWith("ready on ")) continue;
      clearTimeout(timer);
      this.url = line.slice("ready on ".length).trim();
      this.listen = this.url.slice("http://".length);
      child.stdout!.resume();
      return this;
    }
    throw new Error(`the server did not start: ${this.said}`);
  }

  /** End it as a crash would, or as an operator would. */
  async stop(signal: "SIGKILL" | "SIGTERM" = "SIGKILL"): Promise<void> {
    const child = this.child;
    this.child = undefined;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    child.kill(signal);
    await once(child, "exit");
  }

  /** A key that may do everything; from then on everybody needs one. */
  async makeKey(): Promise<string> {
    const args = ["token", "create", "all", "--allow", "admin:*", "--data", "data"];
    const key = execFileSync(PUSHLANE, args, {
      cwd: this.folder,
      env: environment,
      stdio: ["ignore", "pipe", "ignore"],
    })
      .toString()
      .trim();
    while ((await fetch(`${this.url}/v1/limits`)).status !== 401) await sleep(50);
    return key;
  }

  /** Let pages of this origin in, from the next start on. */
  allow(origin: string): void {
    const text = `[auth]\nallowed_origins = ["${origin}"]\n`;
    writeFileSync(join(this.folder, "pushlane.toml"), text);
  }

  async close(): Promise<void> {
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
