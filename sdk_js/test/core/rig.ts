/** A core with a clock of its own, for tests that say what happens. */
import { ClientCore } from "../../src/core/client.js";
import type { Effect, Ticket } from "../../src/core/effects.js";
import { encode } from "../../src/core/frame.js";
import { type MessageOptions, Publication, type Published } from "../../src/core/publication.js";
import { DEFAULTS, type Settings } from "../../src/core/settings.js";
import type { PushlaneError } from "../../src/wire/errors.js";

/** A ticket that remembers. */
export class Slip implements Ticket {
  value: unknown = "waiting";
  resolve(value?: unknown): void {
    this.value = (value as Published | undefined)?.id ?? "done";
  }
  reject(error: unknown): void {
    this.value = (error as PushlaneError).code;
  }
}

export class Rig {
  now = 0;
  readonly core: ClientCore;
  link = 0;
  /** Frames that were sent, since they were last looked at. */
  private sent: any[] = [];
  readonly effects: Effect[] = [];

  constructor(settings: Partial<Settings> = {}) {
    this.core = new ClientCore({
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

  welcome(limits: Record<string, number> = {}, more: object = {}): void {
    this.carryOut();
    this.core.connected(this.link, null, this.now);
    this.hear({
      op: "welcome", session: "s", node: "", server: "", resumed: false, now: 0, resume_ms: 1,
      heartbeat_ms: 25_000, limits, ...more,
    }); // prettier-ignore
    this.frames();
  }

  hear(...frames: object[]): void {
    this.core.received(this.link, frames, this.now);
    this.carryOut();
  }

  /** Let time pass. */
  pass(ms: number): void {
    this.now += ms;
    this.core.tick(this.now);
    this.carryOut();
  }

  lose(): void {
    this.core.lost(this.link, this.now);
    this.carryOut();
  }

  publish(body: unknown, options: MessageOptions = {}, queue = "q"): Slip {
    const slip = new Slip();
    this.core.publish(queue, new Publication(body, options, slip), this.now);
    return slip;
  }

  /** Flush; what was sent. */
  frames(): any[] {
    this.core.flush(this.now);
    this.carryOut();
    return this.sent.splice(0);
  }

  carryOut(): void {
    for (const effect of this.core.effects.splice(0)) {
      this.effects.push(effect);
      if (effect.kind === "send") this.sent.push(JSON.parse(encode(effect.frame)));
      else if (effect.kind === "dial") this.link = effect.link;
      else if (effect.kind === "resolve") effect.ticket.resolve(effect.value);
      else if (effect.kind === "reject") effect.ticket.reject(effect.error);
    }
  }
}
