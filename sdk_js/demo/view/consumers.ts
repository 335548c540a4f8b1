/** The consumers: what each of them holds, of the credit it has, and how it behaves. */

import type { Consumer } from "../consumer.js";
import { type Demo, plural } from "../demo.js";
import { type Mode, MODES } from "../letters.js";
import { MOST_CONSUMERS } from "../settings.js";
import type { Chips } from "./chips.js";
import { byId, h, number, segmented, setChildren, setClass, setText } from "./dom.js";

interface Card {
  consumer: Consumer;
  root: HTMLElement;
  state: HTMLElement;
  credit: HTMLElement;
  slots: HTMLElement;
  numbers: HTMLElement;
  kill: HTMLButtonElement;
}

export class ConsumersView {
  private cards: Card[] = [];
  private add = byId("add-consumer") as HTMLButtonElement;

  constructor(
    private demo: Demo,
    private chips: Chips,
  ) {
    this.add.addEventListener("click", () => demo.addConsumer());
  }

  render(): void {
    const { consumers } = this.demo;
    while (this.cards.length < consumers.length) {
      this.cards.push(this.makeCard(consumers[this.cards.length]!));
      setChildren(
        byId("consumers"),
        this.cards.map(({ root }) => root),
      );
    }
    for (const card of this.cards) this.renderCard(card);
    this.add.hidden = consumers.length >= MOST_CONSUMERS;
  }

  private makeCard(consumer: Consumer): Card {
    const { name } = consumer;
    const state = h("span", { class: "consumer-state" });
    const credit = h("span", { class: "consumer-credit" });
    const slots = h("div", { class: "slots" });
    const numbers = h("p", { class: "consumer-numbers" });
    const kill = h("button", { type: "button", class: "small" });
    kill.addEventListener("click", () =>
      consumer.state === "killed" ? consumer.start() : consumer.kill(),
    );
    const modes = MODES.map((mode) => [mode, mode] as const);
    const choice = segmented<Mode>(`How ${name} behaves`, modes, consumer.mode, (mode) =>
      consumer.behave(mode),
    );
    const title = h("h3", {}, h("span", { class: "dot", "aria-hidden": "true" }), name);
    const head = h("div", { class: "consumer-head" }, title, state, kill);
    const body = h("div", { class: "consumer-body" }, slots, credit);
    const root = h("li", { class: "consumer" }, head, body, choice, numbers);
    return { consumer, root, state, credit, slots, numbers, kill };
  }

  private renderCard({ consumer, root, state, credit, slots, numbers, kill }: Card): void {
    const { name, done, failed, lost, held } = consumer;
    root.dataset["state"] = consumer.state;
    root.dataset["mode"] = consumer.mode;
    setText(state, consumer.state === "connecting" ? "reconnecting" : consumer.state);
    const most = this.demo.settings.credit;
    const isKilled = consumer.state === "killed";
    const leases = held ? plural(held, "lease") : "gone";
    setText(credit, isKilled ? leases : `${held} of ${most} credit`);
    setText(kill, isKilled ? "Start" : "Kill");
    kill.setAttribute("aria-label", `${isKilled ? "Start" : "Kill"} ${name}`);
    setClass(kill, "danger", !isKilled);
    setText(numbers, `${number(done)} done · ${number(failed)} failed · ${number(lost)} lost`);
    this.renderSlots(consumer, slots);
  }

  private renderSlots(consumer: Consumer, slots: HTMLElement): void {
    while (slots.children.length < consumer.slots.length) slots.append(h("div", { class: "slot" }));
    consumer.slots.forEach((uid, at) => {
      const slot = slots.children[at]!;
      const entry = uid === null ? undefined : this.demo.book.entries.get(uid);
      const chip = entry?.place === "held" ? this.chips.of(entry) : undefined;
      if (chip) {
        chip.tabIndex = 0;
        chip.classList.remove("blocked");
      }
      setChildren(slot, chip ? [chip] : []);
    });
  }
}
