/** A minute of the demo that plays by itself: each step does something and waits until it shows. */

import type { Demo } from "./demo.js";

const LOOK_MS = 100;
/** A step that doesn't come to its end is left: somebody may have changed things meanwhile. */
const STEP_MS = 30_000;
/** So that one can read it. */
const READ_MS = 4000;

interface Step {
  text: string;
  /** The heading of the part of the page where it can be seen. */
  shows: string;
  begin: (demo: Demo) => Promise<void> | void;
  isOver: (demo: Demo) => boolean;
}

const isQuiet = ({ book }: Demo): boolean => book.counts.acked === book.published;

export const STEPS: readonly Step[] = [
  {
    text:
      "A hundred messages. Each was on the disk before its publish was answered, and is " +
      "pushed to whoever has credit. One key, one at a time.",
    shows: "lanes-title",
    begin: (demo) => demo.publish(100),
    isOver: ({ book }) => book.counts.waiting < 60,
  },
  {
    text: "Grace is killed. Her leases run out, then others get her work.",
    shows: "consumers-title",
    begin: ({ consumers }) => consumers[1]?.kill(),
    isOver: ({ consumers }) => !consumers[1]?.held,
  },
  {
    text:
      "This one fails wherever it goes. It comes back after a backoff, then again, and " +
      "ends among the dead letters. Only its own key waited.",
    shows: "dead-title",
    begin: (demo) => demo.publishBad(),
    isOver: ({ book }) => book.counts.dead > 0,
  },
  {
    text: "kill -9, with a full queue. Everybody reconnects; what was acknowledged is there.",
    shows: "consumers-title",
    begin: async (demo) => {
      await demo.publish(100);
      await demo.restart();
    },
    isOver: (demo) => !demo.isAway && demo.consumers.every(({ state }) => state !== "connecting"),
  },
  {
    text: "Grace is back, and the bug is fixed: the dead letter goes back to its queue.",
    shows: "lanes-title",
    begin: async (demo) => {
      if (demo.consumers[1]?.state === "killed") demo.consumers[1].start();
      await demo.redrive();
    },
    isOver: isQuiet,
  },
  {
    text: "Every published message was acked. Now break it yourself.",
    shows: "ledger-title",
    begin: () => {},
    isOver: isQuiet,
  },
];

export class Tour {
  /** The step that is shown, from 0; null: it does not run. */
  at: number | null = null;
  onChange: () => void = () => {};
  private turn = 0;

  constructor(private demo: Demo) {}

  async play(): Promise<void> {
    const turn = ++this.turn;
    for (const [at, step] of STEPS.entries()) {
      this.show(at);
      await step.begin(this.demo);
      const begun = Date.now();
      const isLate = () => Date.now() - begun > STEP_MS;
      while (Date.now() - begun < READ_MS || !(step.isOver(this.demo) || isLate())) {
        await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
        if (turn !== this.turn) return;
      }
    }
    this.stop();
  }

  stop(): void {
    this.turn += 1;
    this.show(null);
  }

  private show(at: number | null): void {
    this.at = at;
    this.onChange();
  }
}
