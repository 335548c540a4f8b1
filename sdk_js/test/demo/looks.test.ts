/** The page is for everybody: on a phone, in the dark, with a keyboard, without motion. */
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { STEPS } from "../../demo/tour.js";
import { behave, press, Rig } from "./rig.js";

const rig = new Rig();
const PHONE = { viewport: { width: 390, height: 844 } };

beforeAll(() => rig.start());
afterEach(() => expect(rig.faults).toEqual([]));
afterAll(() => rig.close());

/** A page on which every kind of thing can be seen. */
async function busy(context: object): Promise<Page> {
  const page = await rig.open({ lease: 60_000, backoff: 60_000, attempts: 2 }, context);
  await behave(page, "fails", 0);
  await behave(page, "hangs", 1);
  await press(page, "100");
  await page.getByText("again in").first().waitFor();
  await press(page, "Kill Grace");
  await page.locator("#explain .badge").waitFor();
  return page;
}

/** Texts whose contrast with what is behind them is below 4.5 (3 for large ones). */
function pale(): string[] {
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const context = canvas.getContext("2d", { willReadFrequently: true })!;
  const paint = (colours: string[]): number[] => {
    context.clearRect(0, 0, 1, 1);
    for (const colour of colours) {
      context.fillStyle = colour;
      context.fillRect(0, 0, 1, 1);
    }
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (colour: number[]): number => {
    const [r, g, b] = colour.map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r! + 0.7152 * g! + 0.0722 * b!;
  };
  const faults = [];
  for (const element of document.querySelectorAll<HTMLElement>("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent!.trim());
    if (!own || !element.checkVisibility({ opacityProperty: true })) continue;
    const grounds: string[] = [];
    for (let at: Element | null = element; at; at = at.parentElement) {
      grounds.unshift(getComputedStyle(at).backgroundColor);
    }
    const { color, fontSize } = getComputedStyle(element);
    const [text, ground] = [light(paint([...grounds, color])), light(paint(grounds))];
    const contrast = (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
    if (contrast < (parseFloat(fontSize) >= 24 ? 3 : 4.5)) {
      faults.push(`${element.textContent!.slice(0, 30)}: ${contrast.toFixed(2)}`);
    }
  }
  return faults;
}

test.each(["light", "dark"] as const)("%s: every text can be read", async (colorScheme) => {
  const page = await busy({ colorScheme, reducedMotion: "reduce" });
  const ground = () =>
    page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const first = await ground();
  expect(await page.evaluate(pale)).toEqual([]);
  await page.evaluate(() => {
    const text = document.createElement("p");
    text.textContent = "too pale";
    text.style.color = "#777";
    document.querySelector(".card")!.append(text);
  });
  expect(await page.evaluate(pale)).toEqual([expect.stringContaining("too pale")]);
  const other = colorScheme === "light" ? "dark" : "light";
  await press(page, `Use the ${other} theme`);
  expect(await ground()).not.toBe(first);
  await page.reload(); // and it is remembered
  await page.waitForSelector("body[data-ready]");
  expect(await ground()).not.toBe(first);
  expect(await page.evaluate(pale)).toEqual([]);
});

test("a phone shows all of it, and nothing sticks out", async () => {
  const page = await busy({ ...PHONE, reducedMotion: "no-preference" });
  const seen = await page.evaluate(() => ({
    width: document.documentElement.scrollWidth,
    out: [...document.querySelectorAll("main *")]
      .filter((element) => element.getBoundingClientRect().right > innerWidth + 1)
      .map((element) => element.className),
    small: [...document.querySelectorAll<HTMLElement>("button:not(.chip)")]
      .filter((button) => button.offsetHeight > 0 && button.offsetHeight < 32)
      .map((button) => button.textContent),
  }));
  expect(seen).toEqual({ width: 390, out: [], small: [] });
});

test("who prefers less motion sees nothing fly", async () => {
  const page = await busy({ reducedMotion: "reduce" });
  const moving = await page.evaluate(
    () =>
      document.getAnimations().filter((animation) => !(animation instanceof CSSAnimation)).length,
  );
  expect(moving).toBe(0);
  expect(await page.locator(".ghost").count()).toBe(0);
});

test("the keyboard is enough, and everything has a name", async () => {
  const page = await busy({});
  const nameless = await page.evaluate(() =>
    [...document.querySelectorAll("button, input")]
      .filter(
        (one) => !one.getAttribute("aria-label") && !one.closest("label, button")?.textContent,
      )
      .map((one) => one.outerHTML),
  );
  expect(nameless).toEqual([]);
  await page.locator("#publish-1").focus();
  const before = await page.evaluate(() => demo.book.published);
  await page.keyboard.press("Enter");
  await page.waitForFunction((then) => demo.book.published === then + 1, before);
  await page.keyboard.press("Tab");
  const focused = await page.evaluate(() => {
    const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement!);
    return [document.activeElement!.id, outlineStyle, parseFloat(outlineWidth) >= 2];
  });
  expect(focused).toEqual(["publish-100", "solid", true]);
  expect(await page.getAttribute("#news", "aria-live")).toBe("polite");
});

test("an address with a wrong setting says so", async () => {
  const page = await rig.open();
  await page.goto(`${rig.url}/?lease=1`);
  await page.getByRole("alert").getByText("lease is 1: an integer from 1000 to 60000").waitFor();
});

test("on a phone the tour goes to what it shows", async () => {
  const page = await rig.open({}, { ...PHONE, reducedMotion: "reduce", hasTouch: true });
  await page.locator("#tour").click();
  /** Whether the head of this part can be seen, below the caption. */
  const isSeen = (title: string) =>
    page.waitForFunction((id) => {
      const caption = document.getElementById("caption")!.getBoundingClientRect();
      const { top } = document.getElementById(id)!.closest("section")!.getBoundingClientRect();
      return scrollY > 0 && top >= caption.bottom - 1 && top < innerHeight - 200;
    }, title);
  for (const { shows } of STEPS.slice(0, 3)) await isSeen(shows);
  await page.locator("#tour").evaluate((button) => (button as HTMLElement).click());
});
