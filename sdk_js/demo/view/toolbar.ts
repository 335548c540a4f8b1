/** The buttons that publish, and those that kill a server. */

import type { Demo } from "../demo.js";
import { byId, h, segmented, setClass, setText } from "./dom.js";

const RATES = [
  ["0", "off"],
  ["5", "5/s"],
  ["20", "20/s"],
] as const;

export class ToolbarView {
  private connection = byId("connection");
  /** By server. */
  private killers = new Map<string, HTMLButtonElement>();

  constructor(private demo: Demo) {
    const press = (id: string, action: () => Promise<void>) =>
      byId(id).addEventListener("click", () => void action().catch((error) => this.fault(error)));
    press("publish-1", () => demo.publish(1));
    press("publish-100", () => demo.publish(100));
    press("publish-bad", () => demo.publishBad());
    for (const name of demo.nodes) byId("servers").append(this.killer(name));
    byId("steady").append(
      segmented("Publish steadily", RATES, "0", (rate) => (demo.producer.rate = Number(rate))),
    );
  }

  private fault(error: unknown): void {
    this.demo.news.tell(String(error), "bad");
  }

  private killer(name: string): HTMLButtonElement {
    const what = this.demo.isCluster ? ` ${name}` : " and restart";
    const kill = () => void this.kill(name).catch((error) => this.fault(error));
    const attributes = { type: "button", class: "danger", onclick: kill };
    const button = h("button", attributes, h("code", {}, "kill -9"), what);
    this.killers.set(name, button);
    return button;
  }

  private async kill(name: string): Promise<void> {
    const button = this.killers.get(name)!;
    button.disabled = true;
    try {
      await this.demo.restart(name);
    } finally {
      button.disabled = false;
    }
  }

  render(): void {
    const { state } = this.demo.client;
    setText(this.connection, state === "open" ? "connected" : "reconnecting");
    setClass(this.connection, "away", state !== "open");
    for (const id of ["publish-1", "publish-100", "publish-bad"]) {
      (byId(id) as HTMLButtonElement).disabled = this.demo.producer.room < 100;
    }
  }
}
