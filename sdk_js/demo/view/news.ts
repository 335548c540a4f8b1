/** What just happened: on the page, and for those who hear it. */

import type { News } from "../news.js";
import { byId, h, setChildren } from "./dom.js";

const SHOWN = 5;

export class NewsView {
  private list = byId("news");
  private rows = new WeakMap<object, HTMLElement>();

  constructor(private news: News) {}

  render(): void {
    const rows = this.news.pieces.slice(0, SHOWN).map((piece) => {
      let row = this.rows.get(piece);
      if (!row) {
        const time = new Date(piece.at).toLocaleTimeString("en-GB");
        row = h("li", { class: piece.tone }, h("time", {}, time), h("span", {}, piece.text));
        this.rows.set(piece, row);
      }
      return row;
    });
    setChildren(this.list, rows);
  }
}
