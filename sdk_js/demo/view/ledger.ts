/** The sum that must always come out: published = acked + in flight + waiting + dead. */

import type { Demo } from "../demo.js";
import { byId, number, setClass, setText } from "./dom.js";

const PARTS = ["acked", "flight", "waiting", "dead"] as const;

export class LedgerView {
  private published = byId("sum-published");
  private verdict = byId("verdict");
  private sending = byId("sending");
  private order = byId("order");

  constructor(private demo: Demo) {}

  render(): void {
    const { book } = this.demo;
    const { counts } = book;
    const values = {
      acked: counts.acked,
      flight: counts.held,
      waiting: counts.waiting + counts.retrying + book.carried,
      dead: counts.dead,
    };
    setText(this.published, number(book.published));
    for (const part of PARTS) {
      setText(byId(`sum-${part}`), number(values[part]));
      byId(`bar-${part}`).style.flexGrow = String(values[part]);
    }
    setText(this.sending, counts.sending ? `${number(counts.sending)} being sent` : "");
    this.renderVerdict();
    this.renderOrder();
  }

  private renderVerdict(): void {
    const { audit, stats } = this.demo.watch;
    const { book } = this.demo;
    const isBad = audit.verdict === "missing" || book.ackedTwice > 0;
    let text = "Server totals match: nothing is lost.";
    if (this.demo.isAway || !stats) text = "The server is down. What it confirmed is on its disk.";
    else if (book.ackedTwice) text = `${book.ackedTwice} messages were acked twice.`;
    else if (isBad) text = "The server has fewer than it confirmed.";
    else if (audit.verdict === "more") text = "Somebody else publishes here, too; nothing is lost.";
    else if (!audit.rounds) text = "Asking the server …";
    setText(this.verdict, text);
    setClass(this.verdict, "bad", isBad);
    setClass(this.verdict, "away", !isBad && (this.demo.isAway || !stats));
  }

  private renderOrder(): void {
    const { order } = this.demo.book;
    const count = number(order.checked);
    const isBad = order.faults.length > 0;
    const [fault] = order.faults;
    const text = fault
      ? `Out of order: ${fault.lane} ${fault.n}, ${fault.why}.`
      : `${count} deliveries with a key, every one in its order.`;
    setText(this.order, text);
    setClass(this.order, "bad", isBad);
  }
}
