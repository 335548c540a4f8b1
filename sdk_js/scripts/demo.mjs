// Builds demo/dist, the page of `make demo`. It loads the SDK as any page would: as the bundle.
//
//     node scripts/demo.mjs
import { copyFileSync, existsSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const DEMO = fileURLToPath(new URL("../demo", import.meta.url));
const DIST = join(DEMO, "dist");

const theBundle = {
  name: "pushlane.min.js",
  setup({ onResolve }) {
    onResolve({ filter: /^pushlane$/ }, () => ({ path: "./pushlane.min.js", external: true }));
  },
};

const folder = mkdtempSync(join(DEMO, "dist-"));
try {
  await build({
    absWorkingDir: DEMO,
    entryPoints: { app: "app.ts", worker: "worker.ts", style: "style/app.css" },
    outdir: folder,
    bundle: true,
    format: "esm",
    target: "es2022",
    minify: true,
    sourcemap: "linked",
    legalComments: "none",
    plugins: [theBundle],
    logLevel: "warning",
  });
  copyFileSync(join(DEMO, "index.html"), join(folder, "index.html"));
  rmSync(DIST, { recursive: true, force: true });
  renameSync(folder, DIST);
} finally {
  if (existsSync(folder)) rmSync(folder, { recursive: true });
}
