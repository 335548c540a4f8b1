/** Why is this message not delivered? The server says. */

import type { Explanation } from "pushlane";
import type { Demo } from "../demo.js";
import { type Entry, nameOf } from "../entry.js";
import { byId, h, seconds, setChildren, setText } from "./dom.js";

const EVERY_MS = 700;
/** How long the end of a message that nobody chose is shown before another takes its place. */
const READ_MS = 4000;
const ENDS: readonly string[] = ["acked", "dead", "expired", "dropped", "purged"];

/** What was said of a message, when, and what the page knew of it then. */
interface Shown {
  entry: Entry;
  changes: number;
  explanation: Explanation;
  at: number;
}

/** Whether nothing more will be said of it, as far as the page knows. */
const isOver = ({ entry, changes, explanation }: Shown): boolean =>
  entry.changes === changes && ENDS.includes(explanation.state);

/** The server forgets how a message ended when all of its time have; the page knows. */
function told(entry: Entry, explanation: Explanation): Explanation {
  const ends = { acked: "it was acked", dead: "it is among the dead letters" };
  const { place } = entry;
  if (explanation.state !== "unknown" || !(place in ends)) return explanation;
  return { ...explanation, state: place, why: ends[place as keyof typeof ends] };
}

export class ExplainView {
  private box = byId("explain");
  private chosen: Entry | null = null;
  private shown: Shown | null = null;
  private isAsking = false;
  private state = h("span", { class: "badge" });
  private name = h("span", { class: "explain-name" });
  private why = h("p", { class: "explain-why" });
  private facts = h("dl", { class: "facts" });
  private hint = h("p", { class: "nothing" }, "Click any message: the server says why it waits.");

  constructor(private demo: Demo) {
    setInterval(() => void this.ask(), EVERY_MS);
    this.render(Date.now());
  }

  choose(entry: Entry): void {
    this.chosen = entry;
    document.querySelector(".chip.chosen")?.classList.remove("chosen");
    document.querySelector(`.chip[data-uid="${CSS.escape(entry.uid)}"]`)?.classList.add("chosen");
    void this.ask();
  }

  /** The chosen one; until somebody chooses, one that waits for a good reason, to its end. */
  private subject(): Entry | null {
    const { chosen, shown } = this;
    if (chosen) return chosen;
    const isDone = shown && isOver(shown) && Date.now() - shown.at > READ_MS;
    return (shown && !isDone ? null : this.waiting()) ?? shown?.entry ?? null;
  }

  private waiting(): Entry | null {
    let waiting: Entry | null = null;
    for (const lane of this.demo.book.lanes.values()) {
      for (const entry of lane) {
        if (entry.place === "retrying" && entry.until) return entry;
        if (entry.place === "waiting" && entry.id) waiting ??= entry;
      }
    }
    return waiting;
  }

  private async ask(): Promise<void> {
    const entry = this.subject();
    const { queue, client } = this.demo;
    if (!entry?.id || this.isAsking || document.hidden || client.state !== "open") return;
    if (this.shown?.entry === entry && isOver(this.shown)) return;
    this.isAsking = true;
    const { changes } = entry;
    try {
      const explanation = told(entry, await client.queues.explain(queue, entry.id));
      this.shown = { entry, changes, explanation, at: Date.now() };
    } catch {
      return; // the server is away: what it said last still stands there
    } finally {
      this.isAsking = false;
    }
    this.render(Date.now());
  }

  render(now: number): void {
    if (!this.shown) return setChildren(this.box, [this.hint]);
    const { entry, changes, explanation } = this.shown;
    if (entry.changes !== changes) void this.ask(); // it is somewhere else by now
    const { state, why, error } = explanation;
    setText(this.state, state);
    this.state.dataset["state"] = state;
    setText(this.name, nameOf(entry));
    this.name.dataset["lane"] = entry.lane;
    setText(this.why, `${why[0]!.toUpperCase()}${why.slice(1)}.`);
    const head = h("p", { class: "explain-head" }, this.name, this.state);
    setChildren(this.facts, this.factsOf(entry, explanation, now));
    const shown = [head, this.why, this.facts];
    if (error) shown.push(h("p", { class: "explain-error" }, error));
    setChildren(this.box, shown);
  }

  private factsOf(entry: Entry, explanation: Explanation, now: number): HTMLElement[] {
    const { since, until, attempts, blockedBy, state } = explanation;
    const facts: [string, string][] = [];
    if (since) facts.push(["for", seconds(now - since)]);
    if (until)
      facts.push([state === "leased" ? "lease ends in" : "comes in", seconds(until - now)]);
    if (attempts) facts.push(["attempts", `${attempts} of ${this.demo.settings.attempts}`]);
    const blocker = blockedBy ? this.demo.book.byId(blockedBy) : undefined;
    if (blocker) facts.push(["behind", nameOf(blocker)]);
    const holder = blocker ?? (state === "leased" ? entry : undefined);
    const consumer = holder?.place === "held" ? this.demo.holderOf(holder) : undefined;
    if (consumer) facts.push(["with", consumer.name]);
    return facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)));
  }
}
