/** Plays the steps of a scenario against the core, and shows what it does as plain objects. */
import type { Wish } from "../../src/core/choice.js";
import { ClientCore } from "../../src/core/client.js";
import type { Effect, Ticket } from "../../src/core/effects.js";
import { encode } from "../../src/core/frame.js";
import type { Lease } from "../../src/core/lease.js";
import type { Loss } from "../../src/core/loss.js";
import { type MessageOptions, Publication, type Published } from "../../src/core/publication.js";
import { ACK, type Kind } from "../../src/core/settle.js";
import type { Subscription } from "../../src/core/subscription.js";
import * as verdict from "../../src/core/verdict.js";
import type { PushlaneError } from "../../src/wire/errors.js";

export interface Step {
  at: number;
  event: string;
  effects: unknown[];
  state: string;
  wake_at: number | null;
  [argument: string]: unknown;
}

/** A ticket that is only a name. */
class Named implements Ticket {
  constructor(readonly name: string) {}
  resolve(): void {}
  reject(): void {}
}

/** A frame as the vectors have it: without an empty list of what is held. */
function frameOf(text: string): Record<string, any> {
  const frame = JSON.parse(text);
  if (frame.resume && !Object.keys(frame.resume.held).length) delete frame.resume.held;
  return frame;
}

const code = (error: PushlaneError | null) => error?.code ?? null;

/** A client, the names of a scenario's things, and what it did. */
export class Player {
  core = this.client("ws");
  private subscriptions = new Map<string, Subscription>();
  private messages = new Map<string, Lease>();

  play(step: Step): unknown[] {
    const event = this.events[step.event];
    if (!event) throw new Error(`no event ${step.event}`);
    event(step.at, step as Record<string, any>);
    return this.core.effects.splice(0).map((effect) => this.shown(effect));
  }

  private client(transport: Wish): ClientCore {
    return new ClientCore({ producer: "p-1", name: "vector", random: () => 0.5, transport });
  }

  private events: Record<string, (at: number, step: Record<string, any>) => void> = {
    start: (at, { ticket, transport = "ws" }) => {
      this.core = this.client(transport);
      this.core.start(at, new Named(ticket));
    },
    connected: (at, { link, token }) => this.core.connected(link, token, at),
    received: (at, { link, frames }) => this.core.received(link, frames, at),
    lost: (at, { link, code, reason, refused }) => {
      const loss: Loss = { code, reason, refused };
      this.core.lost(link, at, loss);
    },
    probed: (at, { link, is_good }) => this.core.probed(link, is_good, at),
    tick: (at) => this.core.tick(at),
    flush: (at) => this.core.flush(at),
    publish: (at, { ticket, queue, message }) => {
      const { body, delay_ms, ttl_ms, ...rest } = message;
      const options: MessageOptions = { ...rest, delayMs: delay_ms, ttlMs: ttl_ms };
      this.core.publish(queue, new Publication(body, options, new Named(ticket)), at);
    },
    subscribe: (_, { ticket, subscription, queue, credit }) => {
      const made = this.core.subscribe(queue, credit, "explicit", undefined, new Named(ticket));
      this.subscriptions.set(subscription, made);
    },
    unsubscribe: (_, { subscription, ticket }) => {
      this.core.consumer.unsubscribe(this.subscriptions.get(subscription)!, new Named(ticket));
    },
    take: (at, { subscription, keep }) => {
      const lease = this.core.take(this.subscriptions.get(subscription)!, at);
      if (!lease) return;
      this.messages.set(lease.message.id, lease);
      if (keep) this.core.keep(lease, at);
    },
    ack: (_, { message, ticket }) => this.settle(message, ACK, ticket),
    nack: (_, { message, ticket, delay_ms, error }) =>
      this.settle(message, verdict.nack(error, delay_ms, this.core.limits), ticket),
    reject: (_, { message, ticket, error }) =>
      this.settle(message, verdict.reject(error, this.core.limits), ticket),
    close: (at, { timeout_ms, ticket }) => this.core.close(at, timeout_ms, new Named(ticket)),
  };

  private settle(message: string, kind: Kind, ticket: string): void {
    const lease = this.messages.get(message)!;
    lease.keptUntil = null;
    this.core.settle(lease, kind, new Named(ticket));
  }

  private shown(effect: Effect): unknown {
    switch (effect.kind) {
      case "send":
        return { effect: "send", link: effect.link, frame: frameOf(encode(effect.frame)) };
      case "dial":
        return { effect: "dial", link: effect.link, transport: effect.transport };
      case "probe":
        return { effect: "probe", link: effect.link };
      case "hangup":
        return { effect: "hangup", link: effect.link, code: effect.code };
      case "resolve": {
        const { id } = (effect.value ?? {}) as Partial<Published>;
        return {
          effect: "resolve",
          ticket: (effect.ticket as Named).name,
          ...(id && { id }),
        };
      }
      case "reject":
        return {
          effect: "reject",
          ticket: (effect.ticket as Named).name,
          code: effect.error.code,
        };
      case "ready":
        return { effect: "ready", subscription: this.named(effect.subscription) };
      case "lost":
        return { effect: "lost", message: effect.lease.message.id };
      case "ended": {
        const subscription = this.named(effect.subscription);
        return { effect: "ended", subscription, code: code(effect.error) };
      }
      case "state":
        return { effect: "state", state: effect.state, code: code(effect.error) };
    }
  }

  private named(subscription: Subscription): string | undefined {
    for (const [name, found] of this.subscriptions) if (found === subscription) return name;
    return undefined;
  }
}
