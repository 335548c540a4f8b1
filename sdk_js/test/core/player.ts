/** Plays the steps of a scenario against the core, and shows what it does as plain objects. */
import type { Wish } from "../../src/core/choice.js";
import { type Core, makeCore } from "../../src/core/client.js";
import type { Lease } from "../../src/core/lease.js";
import type { Ticket } from "../../src/core/line.js";
import { type MessageOptions, Publication } from "../../src/core/publication.js";
import { DEFAULTS } from "../../src/core/settings.js";
import { ACK, type Kind, summary } from "../../src/core/settler.js";
import type { Shell } from "../../src/core/shell.js";
import type { Subscription } from "../../src/core/subscription.js";
import type { PushlaneError } from "../../src/wire/errors.js";

export interface Step {
  at: number;
  event: string;
  effects: unknown[];
  state: string;
  wake_at: number | null;
  [argument: string]: unknown;
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
  private effects: unknown[] = [];
  private subscriptions = new Map<string, Subscription>();
  private messages = new Map<string, Lease>();
  private shell: Shell = {
    dial: (link, transport) => this.did("dial", { link, transport }),
    probe: (link) => this.did("probe", { link }),
    send: (link, text) => this.did("send", { link, frame: frameOf(text) }),
    hangUp: (link, code) => this.did("hangup", { link, code }),
    changed: (state, error) => this.did("state", { state, code: code(error) }),
  };
  core = this.client("ws");

  play(step: Step): unknown[] {
    const event = this.events[step.event];
    if (!event) throw new Error(`no event ${step.event}`);
    event(step.at, step as Record<string, any>);
    return this.effects.splice(0);
  }

  wakeAt(): number | null {
    const at = this.core.wakeAt();
    return at === Infinity ? null : at;
  }

  private did(effect: string, more: object): void {
    this.effects.push({ effect, ...more });
  }

  private client(transport: Wish): Core {
    const settings = DEFAULTS;
    const options = { producer: "p-1", name: "vector", random: () => 0.5, settings, transport };
    return makeCore(this.shell, options);
  }

  private ticket(ticket: string): Ticket<any> {
    return {
      resolve: (value) => this.did("resolve", { ticket, ...(value && { id: value.id }) }),
      reject: (error) => this.did("reject", { ticket, code: (error as PushlaneError).code }),
    };
  }

  private events: Record<string, (at: number, step: Record<string, any>) => void> = {
    start: (at, { ticket, transport = "ws" }) => {
      this.core = this.client(transport);
      this.core.start(at, this.ticket(ticket));
    },
    connected: (_, { link, token }) => this.core.connected(link, token ?? undefined),
    received: (at, { link, frames }) => this.core.received(link, frames, at),
    lost: (at, { link, code, reason, refused }) =>
      this.core.lost(link, at, { code, reason, refused }),
    probed: (at, { link, is_good }) => this.core.probed(link, is_good, at),
    tick: (at) => this.core.tick(at),
    flush: (at) => this.core.flush(at),
    publish: (at, { ticket, queue, message }) => {
      const { body, delay_ms, ttl_ms, ...rest } = message;
      const options: MessageOptions = { ...rest, delayMs: delay_ms, ttlMs: ttl_ms };
      const publication = new Publication(body, options, this.ticket(ticket));
      this.core.producer.publish(queue, publication, at);
    },
    subscribe: (_, { ticket, subscription, queue, credit }) => {
      const made = this.core.consumer.subscribe({ from: queue, credit }, this.ticket(ticket));
      made.owner = {
        onReady: () => this.did("ready", { subscription }),
        onEnded: (error) => this.did("ended", { subscription, code: code(error) }),
      };
      this.subscriptions.set(subscription, made);
    },
    unsubscribe: (_, { subscription, ticket }) => {
      this.core.consumer.unsubscribe(this.subscriptions.get(subscription)!, this.ticket(ticket));
    },
    take: (at, { subscription, keep }) => {
      const lease = this.core.take(this.subscriptions.get(subscription)!, at);
      if (!lease) return;
      const { id } = lease.message;
      this.messages.set(id, lease);
      lease.owner = { cancel: () => this.did("lost", { message: id }) };
      if (keep) this.core.consumer.clocks.keep(lease, at);
    },
    ack: (_, { message, ticket }) => this.settle(message, ACK, ticket),
    nack: (_, { message, ticket, delay_ms, error }) =>
      this.settle(message, { op: "nack", delay_ms, error: summary(error, this.core) }, ticket),
    reject: (_, { message, ticket, error }) =>
      this.settle(message, { op: "nack", error, dead: true }, ticket),
    close: (at, { timeout_ms, ticket }) => this.core.close(at, timeout_ms, this.ticket(ticket)),
  };

  private settle(message: string, kind: Kind, ticket: string): void {
    const lease = this.messages.get(message)!;
    lease.keptUntil = 0;
    this.core.consumer.settler.settle(lease, kind, this.ticket(ticket));
  }
}
