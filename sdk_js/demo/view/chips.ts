/** The little squares that messages are: one element each, wherever on the page it is just now. */

import type { Demo } from "../demo.js";
import { type Entry, nameOf } from "../entry.js";
import { NO_KEY } from "../keys.js";
import { h, seconds, setText } from "./dom.js";

export class Chips {
  private elements = new Map<string, HTMLButtonElement>();

  constructor(
    private demo: Demo,
    private choose: (entry: Entry) => void,
  ) {}

  of(entry: Entry): HTMLButtonElement {
    let chip = this.elements.get(entry.uid);
    if (!chip) {
      const text = h("span", {}, String(entry.n ?? "?"));
      chip = h("button", { class: "chip", type: "button", tabindex: "-1" }, text);
      chip.dataset["lane"] = entry.lane;
      chip.dataset["uid"] = entry.uid;
      chip.addEventListener("click", () => this.choose(entry));
      this.elements.set(entry.uid, chip);
    }
    this.dress(chip, entry);
    return chip;
  }

  /** The element, if it was ever shown. */
  known(entry: Entry): HTMLButtonElement | undefined {
    return this.elements.get(entry.uid);
  }

  forget(entry: Entry): void {
    this.elements.get(entry.uid)?.remove();
    this.elements.delete(entry.uid);
  }

  /** Its looks say where it stands; its ring, how long it has. */
  private dress(chip: HTMLButtonElement, entry: Entry): void {
    const { dataset } = chip;
    const letter = entry.lane === NO_KEY ? "" : entry.lane[0]!;
    const isHeld = entry.place === "held";
    setText(chip.firstElementChild!, `${isHeld ? letter : ""}${entry.n ?? "?"}`);
    if (dataset["place"] !== entry.place) dataset["place"] = entry.place;
    dataset["tried"] = String(Math.min(entry.attempt, 9));
    const timed = entry.until === null ? "" : `${entry.from}-${entry.until}`;
    if (dataset["timed"] !== timed) {
      dataset["timed"] = timed;
      this.wind(chip, entry);
    }
    chip.setAttribute("aria-label", this.describe(entry));
  }

  /** Starts the ring anew; two animations that are the same take turns, else it would go on. */
  private wind(chip: HTMLElement, { from, until }: Entry): void {
    if (until === null) return void chip.classList.remove("ring-a", "ring-b");
    const next = chip.classList.contains("ring-a") ? "ring-b" : "ring-a";
    chip.classList.remove("ring-a", "ring-b");
    chip.classList.add(next);
    chip.style.setProperty("--ring-ms", `${Math.max(1, until - from)}ms`);
    chip.style.setProperty("--ring-gone", `${from - Date.now()}ms`);
  }

  private describe(entry: Entry): string {
    const name = nameOf(entry);
    const left = entry.until === null ? "" : seconds(entry.until - Date.now());
    switch (entry.place) {
      case "held":
        return `${name}, with ${this.demo.holderOf(entry)?.name}, attempt ${entry.attempt}`;
      case "retrying":
        return `${name}, comes back${left ? ` in ${left}` : " later"}`;
      case "dead":
        return `${name}, a dead letter`;
      default:
        return `${name}, ${entry.place}`;
    }
  }
}
