/** The queue: a lane for each key, in order, and one for messages without a key. */

import type { Demo } from "../demo.js";
import type { Entry } from "../entry.js";
import { LANES, NO_KEY } from "../keys.js";
import type { Chips } from "./chips.js";
import { byId, h, number, seconds, setChildren, setClass, setText } from "./dom.js";

/** A chip and its gap: as many as fit are drawn. */
const CHIP_PX = 36;
const MORE_PX = 52;

interface Row {
  lane: string;
  root: HTMLElement;
  state: HTMLElement;
  chips: HTMLElement;
  more: HTMLElement;
  done: HTMLElement;
}

export class LanesView {
  private rows = LANES.map((lane) => this.makeRow(lane));
  private widths = new Map<Element, number>();

  constructor(
    private demo: Demo,
    private chips: Chips,
  ) {
    byId("lanes").append(...this.rows.map(({ root }) => root));
    const observer = new ResizeObserver((seen) => {
      for (const { target, contentRect } of seen) this.widths.set(target, contentRect.width);
      demo.onChange();
    });
    for (const { chips } of this.rows) observer.observe(chips);
  }

  private makeRow(lane: string): Row {
    const state = h("span", { class: "lane-state" });
    const chips = h("div", { class: "lane-chips" });
    const more = h("span", { class: "lane-more" });
    const done = h("span", { class: "lane-done" });
    const name = h("span", { class: "lane-name" }, lane);
    const root = h("li", { class: "lane" }, name, state, chips, done);
    root.dataset["lane"] = lane;
    return { lane, root, state, chips, more, done };
  }

  render(now: number): void {
    for (const row of this.rows) this.renderRow(row, now);
  }

  private renderRow({ lane, state, chips, more, done }: Row, now: number): void {
    const all = [...this.demo.book.lanes.get(lane)!];
    const held = all.filter(({ place }) => place === "held");
    const here = all.filter(({ place }) => place !== "held" && place !== "dead");
    const retrying = here.find(({ place }) => place === "retrying");
    const isOrdered = lane !== NO_KEY;
    const width = this.widths.get(chips) ?? 0;
    let room = Math.floor(width / CHIP_PX);
    if (here.length > room) room = Math.max(0, Math.floor((width - MORE_PX) / CHIP_PX));
    const shown = here.slice(0, room).map((entry, at) => {
      const chip = this.chips.of(entry);
      setClass(
        chip,
        "blocked",
        isOrdered && entry.place !== "retrying" && (at > 0 || !!held.length),
      );
      chip.tabIndex = at === 0 ? 0 : -1;
      return chip as HTMLElement;
    });
    if (here.length > room) {
      setText(more, `+${number(here.length - room)}`);
      shown.push(more);
    }
    setChildren(chips, shown);
    this.renderState(state, isOrdered, held, here, retrying, now);
    setText(done, number(this.demo.book.done.get(lane)!));
  }

  private renderState(
    state: HTMLElement,
    isOrdered: boolean,
    held: Entry[],
    here: Entry[],
    retrying: Entry | undefined,
    now: number,
  ): void {
    let text = here.length ? "next" : "empty";
    if (isOrdered && held[0]) text = `${held[0].n ?? ""} with ${this.demo.holderOf(held[0])?.name}`;
    else if (!isOrdered && held.length) text = `${held.length} at once`;
    else if (retrying) {
      text = retrying.until ? `again in ${seconds(retrying.until - now)}` : "comes again";
    }
    setText(state, text);
    setClass(state, "waits", !!retrying && !(isOrdered && held.length));
    setClass(state, "quiet", !held.length && !retrying);
  }
}
