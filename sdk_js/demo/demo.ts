/** The whole demo without its looks: a queue, a producer, consumers, and who watches them. */

import { connect, type Client } from "pushlane";
import { Book } from "./book.js";
import { Consumer, type ConsumerState } from "./consumer.js";
import { Doubts } from "./doubts.js";
import { type Entry, nameOf, type Place } from "./entry.js";
import { News } from "./news.js";
import { Producer } from "./producer.js";
import { findQueue, freshRun } from "./queue.js";
import { restartServer, serverState } from "./server.js";
import { type DemoSettings, MOST_CONSUMERS } from "./settings.js";
import { Watch } from "./watch.js";

const CONNECT_MS = 120_000;
/** Nobody else is in a hurry to come back to this server: no need to wait for long. */
const RECONNECT_MS = 1000;
/** A consumer that keeps failing is held back for this long at most. */
const HELD_BACK_MS = 3000;

export class Demo {
  readonly news = new News();
  readonly consumers: Consumer[] = [];
  readonly book: Book;
  readonly producer: Producer;
  readonly watch: Watch;
  /** How long the server was away, each time. */
  readonly outages: number[] = [];
  onChange: () => void = () => {};
  onMove: (entry: Entry, was: Place) => void = () => {};
  private fixed = 0;
  private awaySince: number | null = null;

  private constructor(
    readonly client: Client,
    readonly url: string,
    /** Of the servers: one, or the nodes of a cluster. */
    readonly nodes: string[],
    readonly queue: string,
    readonly settings: DemoSettings,
  ) {
    this.book = new Book(freshRun(), settings.attempts);
    this.book.onChange = (entry, was) => this.changed(entry, was);
    this.producer = new Producer(client, queue, this.book);
    this.producer.onFault = (error) => this.news.tell(`Not published: ${String(error)}`, "bad");
    this.watch = new Watch(client, queue, this.dead, this.book);
    this.watch.onLook = () => this.onChange();
    new Doubts(client, queue, this.book);
    client.addEventListener("state", () => this.connectionChanged());
  }

  static async open(settings: DemoSettings): Promise<Demo> {
    const { url, nodes } = await serverState();
    const client = await connect(url, {
      name: "the page",
      transport: "ws",
      settings: { connectMs: CONNECT_MS, backoffMaxMs: RECONNECT_MS },
    });
    const names = nodes.map(({ name }) => name);
    const demo = new Demo(client, url, names, await findQueue(), settings);
    await demo.begin();
    return demo;
  }

  get dead(): string {
    return `${this.queue}.dead`;
  }

  get isCluster(): boolean {
    return this.nodes.length > 1;
  }

  get isAway(): boolean {
    return this.awaySince !== null;
  }

  private async begin(): Promise<void> {
    const { lease, attempts, backoff } = this.settings;
    await this.client.queues.replace(this.queue, {
      leaseMs: lease,
      maxAttempts: attempts,
      backoffBaseMs: backoff,
      consumerBackoffMaxMs: HELD_BACK_MS,
      deadLetter: this.dead,
    });
    await this.client.queues.ensure(this.dead);
    await this.watch.begin();
    for (let count = 0; count < this.settings.consumers; count++) this.addConsumer();
    void this.watch.run();
  }

  // What one can do

  async publish(count: number): Promise<void> {
    const done = this.producer.publish(count);
    this.onChange();
    await done;
    if (count > 1)
      this.news.tell(`${count} messages are stored: on the server's disk, each of them.`);
  }

  async publishBad(): Promise<void> {
    await this.producer.publishBad();
    this.news.tell("A message that always fails. Messages behind it have the same key.");
  }

  addConsumer(): void {
    if (this.consumers.length >= MOST_CONSUMERS) return;
    const { url, queue } = this;
    const { credit, lease, work } = this.settings;
    const begin = { url, queue, credit, leaseMs: lease, workMs: work };
    const number = this.consumers.length;
    const consumer = new Consumer(number, this.book, begin, () => this.fixed);
    consumer.onChange = () => this.onChange();
    consumer.onState = (state) => this.consumerChanged(consumer, state);
    this.consumers.push(consumer);
    consumer.start();
  }

  /** kill -9 a server; resolves when it is back. */
  async restart(name: string = this.nodes[0]!): Promise<void> {
    if (!this.isCluster) {
      this.news.tell("kill -9: the server is gone.", "bad");
      await restartServer(name);
      return;
    }
    this.news.tell(`kill -9: ${name} is gone. The others take over what it had.`, "bad");
    await restartServer(name);
    this.news.tell(`${name} is back, and gets its share again.`, "good");
  }

  /** Fix the bug, then send the dead letters back. */
  async redrive(): Promise<void> {
    this.fixed = this.producer.lastBug;
    for (const consumer of this.consumers) consumer.tell({ is: "fixed", bug: this.fixed });
    const count = await this.watch.redrive();
    this.news.tell(
      `The bug is fixed. ${plural(count, "dead letter")} went back to the queue.`,
      "good",
    );
    this.onChange();
  }

  // What happens

  private changed(entry: Entry, was: Place): void {
    for (const consumer of this.consumers) {
      if (entry.place !== "held" || entry.holder !== consumer.number) consumer.release(entry.uid);
    }
    if (entry.place === "dead") {
      const why = entry.error ? `: ${entry.error}` : "";
      this.news.tell(
        `${nameOf(entry)} is a dead letter after ${entry.attempt} attempts${why}.`,
        "bad",
      );
    } else if (
      was === "held" &&
      entry.place !== "acked" &&
      this.holderOf(entry)?.state === "killed"
    ) {
      this.news.tell(
        `The lease of ${this.holderOf(entry)!.name} ran out: ${nameOf(entry)} is free again.`,
      );
    }
    this.onMove(entry, was);
    this.onChange();
  }

  holderOf({ holder }: Entry): Consumer | undefined {
    return holder === null ? undefined : this.consumers[holder];
  }

  private consumerChanged(consumer: Consumer, state: ConsumerState): void {
    const { name, held } = consumer;
    if (state !== "killed") return;
    const fate = held ? ` Its ${plural(held, "lease")} must run out first.` : "";
    this.news.tell(`${name} was killed.${fate}`, "bad");
  }

  private connectionChanged(): void {
    if (this.client.state === "open" && this.awaySince !== null) {
      const away = Date.now() - this.awaySince;
      this.awaySince = null;
      this.outages.push(away);
      const seconds = (away / 1000).toFixed(1);
      this.news.tell(
        this.isCluster
          ? `This page was on that server. It reconnected by itself after ${seconds} s.`
          : `The server is back after ${seconds} s. Everybody reconnected by themselves.`,
        "good",
      );
    } else if (this.client.state === "connecting") {
      this.awaySince ??= Date.now();
    }
    this.onChange();
  }
}

export const plural = (count: number, what: string): string =>
  `${count} ${what}${count === 1 ? "" : "s"}`;
