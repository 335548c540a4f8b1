/** The button that plays the minute, and what is said meanwhile. */

import type { Demo } from "../demo.js";
import { STEPS, Tour } from "../tour.js";
import { byId, h, setText } from "./dom.js";

export class TourView {
  private button = byId("tour");
  private caption = byId("caption");
  private text = byId("caption-text");
  private tour: Tour;
  /** The step that the page was scrolled to. */
  private scrolled: number | null = null;

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

  /** On a small screen most of it is out of sight: go to where the step can be seen, once. */
  private follow(at: number | null): void {
    this.scrolled = at;
    if (at === null) return;
    const part = byId(STEPS[at]!.shows).closest("section")!;
    const { top, bottom } = part.getBoundingClientRect();
    if (top >= this.caption.offsetHeight && bottom <= innerHeight) return;
    const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    part.scrollIntoView({ behavior: isCalm ? "auto" : "smooth", block: "start" });
  }

  render(): void {
    const { at } = this.tour;
    setText(this.button, at === null ? "Take the 1-minute tour" : "Stop");
    this.caption.hidden = at === null;
    if (at !== this.scrolled) this.follow(at);
    if (at === null) return;
    setText(this.text, STEPS[at]!.text);
    [...byId("steps").children].forEach((dot, index) => {
      dot.className = index < at ? "past" : index === at ? "now" : "";
    });
  }
}
