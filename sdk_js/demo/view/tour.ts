/** The button that plays the minute, and what is said meanwhile. */

import type { Demo } from "../demo.js";
import { STEPS, Tour } from "../tour.js";
import { byId, h, setText } from "./dom.js";

export class TourView {
  private button = byId("tour");
  private caption = byId("caption");
  private text = byId("caption-text");
  private tour: Tour;

  constructor(private demo: Demo) {
    this.tour = new Tour(demo);
    this.tour.onChange = () => demo.onChange();
    this.button.addEventListener("click", () => void this.toggle());
    byId("steps").append(...STEPS.map(() => h("li")));
  }

  private async toggle(): Promise<void> {
    if (this.tour.at !== null) return this.tour.stop();
    try {
      await this.tour.play();
    } catch (error) {
      this.tour.stop();
      this.demo.news.tell(String(error), "bad");
    }
  }

  render(): void {
    const { at } = this.tour;
    setText(this.button, at === null ? "Show me, in a minute" : "Stop");
    this.caption.hidden = at === null;
    if (at === null) return;
    setText(this.text, STEPS[at]!.text);
    [...byId("steps").children].forEach((dot, index) => {
      dot.className = index < at ? "past" : index === at ? "now" : "";
    });
  }
}
