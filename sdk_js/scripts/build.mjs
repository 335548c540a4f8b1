// Builds dist/: ESM and CommonJS with their types, and the bundle for browsers.
//
//     node scripts/build.mjs
//
// Everything is made in a folder of its own and then put in place, so that a build that fails, or
// two at a time, leave no half of one.
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build, transform } from "esbuild";
import { minify } from "terser";
import { ownNames } from "./names.mjs";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const DIST = join(ROOT, "dist");
const TSC = createRequire(import.meta.url).resolve("typescript/bin/tsc");

const shared = {
  absWorkingDir: ROOT,
  entryPoints: ["src/index.ts"],
  bundle: true,
  target: "es2022",
  external: ["ws"],
  logLevel: "warning",
};

/** One module format, with its types beside it. */
async function makeModule(folder, format) {
  await build({ ...shared, format, outfile: join(folder, "index.js"), platform: "neutral" });
  const options = [
    "--declaration",
    "--emitDeclarationOnly",
    "--rootDir",
    "src",
    "--noEmit",
    "false",
  ];
  execFileSync(
    process.execPath,
    [TSC, "-p", "tsconfig.build.json", ...options, "--outDir", folder],
    {
      cwd: ROOT,
      stdio: "inherit",
    },
  );
  const type = format === "esm" ? "module" : "commonjs";
  writeFileSync(join(folder, "package.json"), `${JSON.stringify({ type })}\n`);
}

/** Browsers' side of what differs. */
const forBrowsers = {
  name: "browser",
  setup: ({ onResolve }) =>
    onResolve({ filter: /\/platform\/node\.js$/ }, () => ({
      path: join(ROOT, "src", "platform", "browser.ts"),
    })),
};

/** What a page loads. Names that are nobody's business are shortened: after bundling, or enums would
 * not become numbers. */
async function makeBundle(outfile) {
  const { outputFiles } = await build({
    ...shared,
    format: "esm",
    platform: "browser",
    plugins: [forBrowsers],
    write: false,
  });
  const { code: short } = await transform(outputFiles[0].text, {
    mangleProps: new RegExp(`^(_.*|${ownNames(ROOT).join("|")})$`),
    target: shared.target,
  });
  const { code: once } = await minify(short, {
    module: true,
    ecma: 2022,
    compress: {
      lhs_constants: false,
      passes: 5,
      pure_getters: true,
      unsafe: true,
      unsafe_arrows: true,
      unsafe_methods: true,
    },
  });
  // One word for all variables packs better, and then more of them share a declaration.
  const { code } = await minify(once.replace(/\bconst\b/g, "let"), {
    module: true,
    ecma: 2022,
    compress: { lhs_constants: false, passes: 3, unsafe: true },
    format: { preamble: "/*! Pushlane Apache-2.0*/" },
  });
  writeFileSync(outfile, `${code}\n`);
}

const folder = mkdtempSync(join(ROOT, "dist-"));
try {
  await makeModule(join(folder, "esm"), "esm");
  await makeModule(join(folder, "cjs"), "cjs");
  await makeBundle(join(folder, "pushlane.min.js"));
  rmSync(DIST, { recursive: true, force: true });
  renameSync(folder, DIST);
} finally {
  if (existsSync(folder)) rmSync(folder, { recursive: true });
}
