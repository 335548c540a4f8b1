// Takes the pictures of docs/demo.md: `make demo` in a real Chromium, with something going on.
//
//     npm run screenshots [-- desktop|phone light|dark]
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const PYTHON = join(ROOT, ".venv", "bin", "python");
const IMAGES = join(ROOT, "docs", "images");
const MOST_BYTES = 200_000;

const SIZES = {
  desktop: { viewport: { width: 1280, height: 900 }, deviceScaleFactor: 2 },
  phone: { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true },
};
const SHRINK = `
import sys
from PIL import Image
path = sys.argv[1]
image = Image.open(path).convert("RGB")
few = image.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
few.save(path, optimize=True)
`;

/** The demo, on a free port. */
async function startDemo() {
  const child = spawn(PYTHON, ["-m", "tools.demo", "--port", "0"], {
    cwd: ROOT,
    stdio: ["ignore", "pipe", "inherit"],
  });
  for await (const line of createInterface(child.stdout)) {
    if (line.startsWith("ready on ")) return { child, url: line.slice("ready on ".length).trim() };
  }
  throw new Error("the demo did not start");
}

/** Slower than the page is by itself, so that there is time to look. */
const SEARCH = "?work=1500&backoff=6000&attempts=4&lease=8000";

/** Bring the page to a moment in which everything can be seen. */
async function play(page) {
  const press = (name) => page.getByRole("button", { name, exact: true }).click();
  const until = (isTrue) => page.waitForFunction(isTrue, null, { timeout: 120_000 });
  await press("one that fails");
  await press("1");
  await until(() => demo.book.counts.dead > 0);
  await page.locator(".consumer").nth(2).getByRole("radio", { name: "slow" }).check();
  for (const name of ["one that fails", "one that fails", "one that fails", "100", "100"])
    await press(name);
  await until(() => {
    const lanes = [...demo.book.lanes.values()].flatMap((lane) => [...lane]);
    const soon = Date.now() + 6000;
    const retrying = lanes.some(({ place, until }) => place === "retrying" && until > soon);
    return retrying && demo.book.counts.acked > 20 && demo.consumers[1].held >= 3;
  });
  await press("Kill Grace");
  await page.waitForTimeout(3000);
  await page.evaluate(() => {
    scrollTo(0, 0);
    document.activeElement.blur();
  });
  await page.waitForTimeout(500);
}

async function shoot(browser, url, size, colorScheme) {
  const context = await browser.newContext({
    ...SIZES[size],
    colorScheme,
    reducedMotion: "reduce", // nothing in mid-air
  });
  const page = await context.newPage();
  await page.goto(`${url}/${SEARCH}`);
  await page.waitForSelector("body[data-ready]");
  await play(page);
  const path = join(IMAGES, `demo-${size}-${colorScheme}.png`);
  await page.screenshot({ path, fullPage: size === "desktop" });
  execFileSync(PYTHON, ["-c", SHRINK, path]);
  const { size: bytes } = statSync(path);
  console.log(path, bytes);
  if (bytes > MOST_BYTES) throw new Error(`${path} has ${bytes} bytes: at most ${MOST_BYTES}`);
  await context.close();
}

mkdirSync(IMAGES, { recursive: true });
const { child, url } = await startDemo();
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-background-networking", "--disable-dev-shm-usage"],
});
try {
  for (const size of Object.keys(SIZES)) {
    for (const scheme of ["light", "dark"]) {
      const isWanted = process.argv.slice(2).every((word) => word === size || word === scheme);
      if (isWanted) await shoot(browser, url, size, scheme);
    }
  }
} finally {
  await browser.close();
  child.kill();
}
