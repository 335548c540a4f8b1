/** A core with a clock of its own, for tests that say what happens. */
import { type Core, makeCore } from "../../src/core/client.js";
import type { Ticket } from "../../src/core/line.js";
import { type MessageOptions, Publication } from "../../src/core/publication.js";
import { DEFAULTS, type Settings } from "../../src/core/settings.js";
import type { Shell } from "../../src/core/shell.js";
import type { Subscription, Wanted } from "../../src/core/subscription.js";
import type { PushlaneError } from "../../src/wire/errors.js";

/** A ticket that remembers. */
export class Slip implements Ticket<any> {
  value: unknown = "waiting";
  resolve(value?: any): void {
    this.value = value?.id ?? "done";
  }
  reject(error: unknown): void {
    this.value = (error as PushlaneError).code;
  }
}

export class Rig implements Shell {
  now = 0;
  readonly core: Core;
  link = 0;
  /** Frames that were sent, since they were last looked at. */
  private sent: any[] = [];

  constructor(settings: Partial<Settings> = {}) {
    this.core = makeCore(this, {
      producer: "p",
      random: () => 0.5,
      settings: { ...DEFAULTS, ...settings },
    });
  }

  /** A client that is connected. */
  static open(settings: Partial<Settings> = {}, limits: Record<string, number> = {}): Rig {
    const rig = new Rig(settings);
    rig.core.start(0);
    rig.welcome(limits);
    return rig;
  }

  dial(link: number): void {
    this.link = link;
  }
  send(_: number, text: string): void {
    this.sent.push(JSON.parse(text));
  }
  probe(): void {}
  hangUp(): void {}
  changed(): void {}

  welcome(limits: Record<string, number> = {}, more: object = {}): void {
    this.core.connected(this.link, undefined);
    this.hear({
      op: "welcome", session: "s", node: "", server: "", resumed: false, now: 0, resume_ms: 1,
      heartbeat_ms: 25_000, limits, ...more,
    }); // prettier-ignore
    this.sent = this.sent.filter(({ op }) => op !== "hello");
  }

  hear(...frames: object[]): void {
    this.core.received(this.link, frames, this.now);
  }

  /** Let time pass. */
  pass(ms: number): void {
    this.now += ms;
    this.core.tick(this.now);
  }

  lose(): void {
    this.core.lost(this.link, this.now);
  }

  publish(body: unknown, options: MessageOptions = {}, queue = "q"): Slip {
    const slip = new Slip();
    this.core.producer.publish(queue, new Publication(body, options, slip), this.now);
    return slip;
  }

  subscribe(more: Partial<Wanted> = {}): Subscription {
    const subscription = this.core.consumer.subscribe({ from: "q", credit: 100, ...more });
    subscription.owner = { onReady() {}, onEnded() {} };
    return subscription;
  }

  /** Flush; what was sent. */
  frames(): any[] {
    this.core.flush(this.now);
    return this.sent.splice(0);
  }
}
