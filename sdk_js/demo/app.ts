/** The page: opens the demo, and draws it whenever something changed. */

import { Demo } from "./demo.js";
import { readSettings } from "./settings.js";
import { Chips } from "./view/chips.js";
import { ConsumersView } from "./view/consumers.js";
import { DeadView } from "./view/dead.js";
import { byId } from "./view/dom.js";
import { ExplainView } from "./view/explain.js";
import { Flight } from "./view/flight.js";
import { LanesView } from "./view/lanes.js";
import { LedgerView } from "./view/ledger.js";
import { NewsView } from "./view/news.js";
import { makeTheme } from "./view/theme.js";
import { ToolbarView } from "./view/toolbar.js";
import { TourView } from "./view/tour.js";

/** Countdowns are drawn this often, whether something changed or not. */
const TICK_MS = 100;

declare global {
  /** For tests, and for the curious. */
  var demo: Demo;
}

function show(demo: Demo): void {
  const flight = new Flight();
  const explain = new ExplainView(demo);
  const chips = new Chips(demo, (entry) => explain.choose(entry));
  const views = [
    new LedgerView(demo),
    new ToolbarView(demo),
    new TourView(demo),
    new LanesView(demo, chips),
    new ConsumersView(demo, chips),
    new DeadView(demo, chips),
    new NewsView(demo.news),
    explain,
  ];
  demo.onMove = (entry, was) => {
    const chip = chips.known(entry);
    if (!chip || entry.place === was) return;
    if (entry.place === "acked") {
      flight.fade(chip);
      chips.forget(entry);
    } else if (was !== "sending") {
      flight.note(chip);
    }
  };
  let isDue = false;
  const draw = () => {
    isDue = false;
    const now = Date.now();
    for (const view of views) view.render(now);
    flight.land();
  };
  demo.onChange = () => {
    if (!isDue) requestAnimationFrame(draw);
    isDue = true;
  };
  demo.news.onPiece = demo.onChange;
  setInterval(() => demo.onChange(), TICK_MS);
  draw();
}

async function main(): Promise<void> {
  makeTheme();
  try {
    globalThis.demo = await Demo.open(readSettings(location.search));
  } catch (error) {
    const fault = byId("fault");
    fault.textContent = `The demo can't start: ${error instanceof Error ? error.message : error}`;
    fault.hidden = false;
    return;
  }
  show(demo);
  document.body.dataset["ready"] = "";
}

void main();
