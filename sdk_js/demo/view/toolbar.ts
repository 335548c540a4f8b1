/** The buttons that publish, and the one that kills the server. */

import type { Demo } from "../demo.js";
import { byId, segmented, setClass, setText } from "./dom.js";

const RATES = [
  ["0", "off"],
  ["5", "5/s"],
  ["20", "20/s"],
] as const;

export class ToolbarView {
  private restart = byId("restart") as HTMLButtonElement;
  private connection = byId("connection");
  private isRestarting = false;

  constructor(private demo: Demo) {
    const press = (id: string, action: () => Promise<void>) =>
      byId(id).addEventListener("click", () => void action().catch((error) => this.fault(error)));
    press("publish-1", () => demo.publish(1));
    press("publish-100", () => demo.publish(100));
    press("publish-bad", () => demo.publishBad());
    press("restart", () => this.kill());
    byId("steady").append(
      segmented("Publish steadily", RATES, "0", (rate) => (demo.producer.rate = Number(rate))),
    );
  }

  private fault(error: unknown): void {
    this.demo.news.tell(String(error), "bad");
  }

  private async kill(): Promise<void> {
    this.isRestarting = true;
    this.demo.onChange();
    try {
      await this.demo.restart();
    } finally {
      this.isRestarting = false;
      this.demo.onChange();
    }
  }

  render(): void {
    const { state } = this.demo.client;
    this.restart.disabled = this.isRestarting;
    setText(this.connection, state === "open" ? "connected" : "reconnecting");
    setClass(this.connection, "away", state !== "open");
    for (const id of ["publish-1", "publish-100", "publish-bad"]) {
      (byId(id) as HTMLButtonElement).disabled = this.demo.producer.room < 100;
    }
  }
}
