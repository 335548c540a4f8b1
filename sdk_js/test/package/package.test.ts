/** The package as users get it: packed, installed into fresh projects, checked, run. */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const BIN = join(ROOT, "node_modules", ".bin");
const folder = mkdtempSync(join(tmpdir(), "pushlane-pack-"));
let tarball = "";

function run(command: string, args: string[], cwd: string): string {
  const done = spawnSync(command, args, { cwd, encoding: "utf8" });
  expect(done.status, `${command} ${args.join(" ")}\n${done.stdout}\n${done.stderr}`).toBe(0);
  return done.stdout;
}

const node = (file: string, cwd: string) => run(process.execPath, [file], cwd).trim();

beforeAll(() => {
  const said = execFileSync("npm", ["pack", "--ignore-scripts", "--json", ROOT], {
    cwd: folder,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
  const packed = JSON.parse(said) as { filename: string }[] | Record<string, { filename: string }>;
  tarball = join(folder, Object.values(packed)[0]!.filename);
});
afterAll(() => rmSync(folder, { recursive: true }));

test("it holds what it should", () => {
  const names = run("tar", ["-tzf", tarball], folder).trim().split("\n");
  for (const name of ["package.json", "README.md", "LICENSE", "dist/pushlane.min.js"]) {
    expect(names).toContain(`package/${name}`);
  }
  expect(names.filter((name) => /src\/|test\/|node_modules|\.map$|ready$/.test(name))).toEqual([]);
});

test("publint has nothing to say", () => {
  expect(run(join(BIN, "publint"), ["run", tarball, "--strict"], ROOT)).toContain("All good!");
});

test("the types are not wrong", () => {
  run(join(BIN, "attw"), [tarball, "--format", "ascii"], ROOT);
});

const USE = `
const client: Client = await connect("ws://127.0.0.1:1", { settings: { connectMs: 1 } }).catch(
  (error: unknown) => {
    if (!(error instanceof PushlaneError)) throw error;
    console.log(error.code, error instanceof ConnectionLost);
    process.exit(0);
  },
);
const id: string = await client.publish("q", { n: 1 }, { key: "k", signal: AbortSignal.timeout(9) });
const results = await client.publishMany("q", [1, new Item({ body: 2, delayMs: 5 })]);
const subscription = await client.subscribe<{ n: number }>("q", { credit: 3 });
for await (const message of subscription) {
  const n: number = message.body.n;
  const result: string = await message.run(async (one) => one.id + String(n));
  console.log(result, message.fence, message.signal.aborted, message.dead?.cause);
}
await client.consume<number>("q", async (message) => console.log(message.body + 1), { leaseMs: 5000 });
client.addEventListener("state", (event) => console.log(event.detail.state));
console.log(id, results[0]?.error?.retryMs, (await client.queues.get("q")).maxAttempts);
`;
const NAMES = "Client, connect, ConnectionLost, Item, PushlaneError";

interface Kind {
  name: string;
  type: string;
  source: string;
  options: object;
}

const KINDS: Kind[] = [
  {
    name: "ESM",
    type: "module",
    source: `import { ${NAMES} } from "pushlane";\n${USE}`,
    options: { module: "NodeNext" },
  },
  {
    name: "CommonJS",
    type: "commonjs",
    source: `import { ${NAMES} } from "pushlane";\nasync function main(): Promise<void> {${USE}}\nvoid main();`,
    options: { module: "NodeNext" },
  },
  {
    name: "a bundler",
    type: "module",
    source: `import { ${NAMES} } from "pushlane";\n${USE}`,
    options: { module: "ESNext", moduleResolution: "Bundler" },
  },
];

describe.each(KINDS)("a fresh project with $name", ({ name, type, source, options }) => {
  const project = join(folder, name.replace(" ", "-"));

  beforeAll(() => {
    mkdirSync(project);
    const manifest = { name: "fresh", private: true, type };
    writeFileSync(join(project, "package.json"), JSON.stringify(manifest));
    run("npm", ["install", "--offline", "--no-audit", "--no-fund", tarball], project);
    mkdirSync(join(project, "node_modules", "@types"));
    const types = join(ROOT, "node_modules", "@types", "node");
    symlinkSync(types, join(project, "node_modules", "@types", "node"));
    writeFileSync(join(project, "main.ts"), source);
    const compilerOptions = {
      target: "ES2022", strict: true, exactOptionalPropertyTypes: true, skipLibCheck: false,
      types: ["node"], outDir: "out", ...options,
    }; // prettier-ignore
    writeFileSync(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions }));
  });

  test("type-checks and runs", () => {
    run(join(BIN, "tsc"), ["-p", project], project);
    let main = "out/main.js";
    if (name === "a bundler") {
      main = "bundle.mjs";
      const args = ["main.ts", "--bundle", "--format=esm", "--platform=node", `--outfile=${main}`];
      run(join(BIN, "esbuild"), args, project);
      run(
        join(BIN, "esbuild"),
        ["main.ts", "--bundle", "--format=esm", "--outfile=b.mjs"],
        project,
      );
    }
    // There is no ws here: Node 20 has nothing but polling then.
    expect(node(main, project)).toBe("connection_lost true");
  });

  test("without ws it says once that it polls", () => {
    const code = `import("pushlane").then(async ({ connect }) => {
      for (let n = 0; n < 2; n++) {
        await connect("ws://127.0.0.1:1", { settings: { connectMs: 1 } }).catch(() => {});
      }
    });`;
    const browser = "delete globalThis.WebSocket;"; // from Node 22 on there is one
    const done = spawnSync(process.execPath, ["-e", browser + code], {
      cwd: project,
      encoding: "utf8",
    });
    expect(done.status, done.stderr).toBe(0);
    expect(done.stderr.match(/pushlane polls over HTTP.*install the package ws/g)).toHaveLength(1);
  });
});
