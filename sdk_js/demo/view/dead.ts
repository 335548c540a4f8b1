/** The dead letters, and the way back. */

import type { Demo } from "../demo.js";
import { type Entry, nameOf } from "../entry.js";
import type { Chips } from "./chips.js";
import { byId, h, number, setChildren, setText } from "./dom.js";

const SHOWN = 4;

export class DeadView {
  private list = byId("dead");
  private redrive = byId("redrive") as HTMLButtonElement;
  private count = byId("dead-count");
  private rows = new Map<string, HTMLElement>();
  private empty = h("li", { class: "nothing" }, "None. Publish one that fails.");
  private more = h("li", { class: "nothing" });

  constructor(
    private demo: Demo,
    private chips: Chips,
  ) {
    this.redrive.addEventListener("click", () => void this.back());
  }

  private async back(): Promise<void> {
    this.redrive.disabled = true;
    try {
      await this.demo.redrive();
    } catch (error) {
      this.demo.news.tell(`Not redriven: ${String(error)}`, "bad");
    }
  }

  render(): void {
    const dead: Entry[] = [];
    for (const lane of this.demo.book.lanes.values()) {
      for (const entry of lane) if (entry.place === "dead") dead.push(entry);
    }
    const rows = dead.slice(0, SHOWN).map((entry) => this.rowOf(entry));
    if (dead.length > SHOWN) {
      setText(this.more, `and ${number(dead.length - SHOWN)} more`);
      rows.push(this.more);
    }
    setChildren(this.list, rows.length ? rows : [this.empty]);
    const uids = new Set(dead.map(({ uid }) => uid));
    for (const uid of this.rows.keys()) if (!uids.has(uid)) this.rows.delete(uid);
    setText(this.count, dead.length ? number(dead.length) : "");
    this.redrive.disabled = !dead.length;
  }

  private rowOf(entry: Entry): HTMLElement {
    let row = this.rows.get(entry.uid);
    if (!row) {
      const text = h("span", { class: "dead-name" }, nameOf(entry));
      const why = h("span", { class: "dead-why" });
      row = h("li", { class: "dead-row" }, text, why);
      this.rows.set(entry.uid, row);
    }
    const chip = this.chips.of(entry);
    chip.tabIndex = 0;
    chip.classList.remove("blocked");
    if (row.firstElementChild !== chip) row.prepend(chip);
    const why = entry.error ?? "no reason given";
    setText(row.lastElementChild!, `${entry.attempt} attempts: ${why}`);
    return row;
  }
}
