/** The core does what the scenarios of the wire vectors say, step by step. */
import { describe, expect, test } from "vitest";
import { vectors } from "../vectors.js";
import { Player, type Step } from "./player.js";

const { scenarios } = vectors<{ scenarios: { name: string; steps: Step[] }[] }>("scenarios");

test("there are scenarios", () => expect(scenarios.length).toBeGreaterThan(30));

describe.each(scenarios)("$name", ({ steps }) => {
  test("step by step", () => {
    const player = new Player();
    steps.forEach((step, number) => {
      const effects = player.play(step);
      const { state } = player.core;
      expect({ number, effects, state, wake_at: player.wakeAt() }).toEqual({
        number,
        effects: step.effects,
        state: step.state,
        wake_at: step.wake_at,
      });
    });
  });
});
