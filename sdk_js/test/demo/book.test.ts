/** What the page knows of messages, told step by step. */
import type { Explanation } from "../../src/index.js";
import { expect, test } from "vitest";
import { Book } from "../../demo/book.js";
import type { Entry } from "../../demo/entry.js";
import { NO_KEY } from "../../demo/keys.js";
import type { Taken } from "../../demo/letters.js";

const LEASE_MS = 1000;
const ATTEMPTS = 3;

class Story {
  readonly book = new Book("run", ATTEMPTS);
  readonly doubts: [string, number][] = [];
  readonly suspects: string[] = [];
  now = 0;

  constructor() {
    this.book.onDoubt = ({ uid }, at) => this.doubts.push([uid, at]);
    this.book.onSuspect = (earlier, taken) => this.suspects.push(`${earlier.n} before ${taken.n}`);
  }

  publish(count: number, lane = "acme"): Entry[] {
    const entries = Array.from({ length: count }, () => this.book.send(lane));
    entries.forEach((entry) => this.book.stored(entry, `id-${entry.uid}`));
    return entries;
  }

  take(entry: Entry, holder = 0, attempt = 1): void {
    const { uid, lane, n } = entry;
    const key = lane === NO_KEY ? null : lane;
    const id = entry.id ?? `again-${uid}`;
    const taken: Taken = { is: "took", id, uid, key, n, attempt };
    this.book.took(holder, taken, LEASE_MS, this.now);
  }

  ack(entry: Entry): void {
    this.book.settling(entry.id!, "ack");
    this.book.acked(entry.id!);
  }

  explain(entry: Entry, state: string, more: Partial<Explanation> = {}): void {
    this.book.explained(entry, { state, why: "because", ...more }, this.now);
  }
}

test("from sending to acked, each step counted once", () => {
  const story = new Story();
  const { book } = story;
  const entry = book.send("acme");
  expect([book.published, book.counts.sending]).toEqual([0, 1]);
  story.take(entry); // it may come before the publish is answered
  expect([book.published, book.counts.held]).toEqual([1, 1]);
  book.stored(entry, entry.id!);
  expect(book.published).toBe(1);
  expect(entry.until).toBe(LEASE_MS);
  book.settling(entry.id!, "ack");
  expect(book.acking).toBe(1);
  book.acked(entry.id!);
  expect([book.counts.acked, book.counts.held, book.acking]).toEqual([1, 0, 0]);
  expect(book.lanes.get("acme")!.size).toBe(0);
});

test("an ack that counts twice, or a delivery after it, is noticed", () => {
  const story = new Story();
  const [entry] = story.publish(1);
  story.take(entry!);
  story.ack(entry!);
  expect(story.book.ackedTwice).toBe(0);
  story.book.acked(entry!.id!);
  expect(story.book.ackedTwice).toBe(1);
  story.take(entry!, 1, 2);
  expect(story.book.ackedTwice).toBe(2);
});

test("deliveries that jump ahead are out of order", () => {
  const story = new Story();
  const [first, second, third] = story.publish(3);
  story.take(first!);
  story.ack(first!);
  story.take(third!);
  expect(story.book.order.faults).toEqual([{ lane: "acme", n: 3, why: "2 had not come yet" }]);
  expect(story.suspects).toEqual(["2 before 3"]);
  story.take(second!);
  expect(story.book.order.checked).toBe(2);
});

test("a message that comes before the one ahead of it is over is suspect", () => {
  const story = new Story();
  const [first, second] = story.publish(2);
  story.take(first!);
  story.take(second!, 1);
  expect(story.suspects).toEqual(["1 before 2"]);
});

test.each([
  ["it is being acked", (story: Story, entry: Entry) => story.book.settling(entry.id!, "ack")],
  ["it is dead", (story: Story, entry: Entry) => story.book.died(entry, null, 3)],
  [
    "it failed for the last time",
    (story: Story, entry: Entry) => {
      story.take(entry, 0, ATTEMPTS);
      story.book.settling(entry.id!, "nack");
      story.book.failed(entry.id!, "no", 0);
    },
  ],
])("the next one may come when %s", (_, end) => {
  const story = new Story();
  const [first, second] = story.publish(2);
  story.take(first!);
  end(story, first!);
  story.take(second!, 1);
  expect(story.suspects).toEqual([]);
  expect(story.book.order.faults).toEqual([]);
});

test("a failure is in doubt until the server says when it comes back", () => {
  const story = new Story();
  const [entry] = story.publish(1);
  story.take(entry!);
  story.book.settling(entry!.id!, "nack");
  story.book.failed(entry!.id!, "no", 10);
  expect(entry).toMatchObject({ place: "retrying", until: null, error: "no" });
  expect(story.doubts).toEqual([[entry!.uid, 10]]);
  story.explain(entry!, "retrying", { until: 500 });
  expect(entry).toMatchObject({ place: "retrying", until: 500, settling: null });
  story.explain(entry!, "dead", { attempts: 3 });
  expect(entry).toMatchObject({ place: "dead", attempt: 3 });
});

test("a lost lease counts only for its last holder", () => {
  const story = new Story();
  const [entry] = story.publish(1);
  story.take(entry!, 0);
  story.take(entry!, 1, 2);
  story.book.lost(0, entry!.id!, 5);
  expect(entry!.place).toBe("held");
  story.book.lost(1, entry!.id!, 5);
  expect(entry!.place).toBe("waiting");
  expect(story.doubts).toEqual([[entry!.uid, 5]]);
});

test("a consumer that is killed holds also what it was settling", () => {
  const story = new Story();
  const [first, second, third] = story.publish(3, NO_KEY);
  story.take(first!, 1);
  story.take(second!, 1);
  story.take(third!, 2);
  story.book.settling(first!.id!, "ack");
  expect(story.book.heldBy(1)).toEqual([first, second]);
  story.ack(first!);
  expect(story.book.heldBy(1)).toEqual([second]);
});

test("an ack without an answer is what the server says it is", () => {
  const story = new Story();
  const [done, undone] = story.publish(2, NO_KEY);
  for (const entry of [done!, undone!]) {
    story.take(entry);
    story.book.settling(entry.id!, "ack");
    story.book.lost(0, entry.id!, 5);
  }
  expect(story.book.acking).toBe(2);
  story.explain(done!, "acked");
  story.explain(undone!, "ready");
  expect([story.book.counts.acked, story.book.counts.waiting]).toEqual([1, 1]);
  expect(story.book.acking).toBe(0);
});

test("what was cleared away has ended, what was never stored has not", () => {
  const story = new Story();
  const [ended, lost] = story.publish(2, NO_KEY);
  story.explain(ended!, "unknown", { why: "everything of its time has ended" });
  story.explain(lost!, "unknown", { why: "it is not stored" });
  expect([ended!.place, lost!.place]).toEqual(["acked", "waiting"]);
});

test("a redriven message goes to the end of its lane, under a new id", () => {
  const story = new Story();
  const [first, second] = story.publish(2);
  story.take(first!);
  story.book.died(first!, "no", 3);
  story.book.redriven();
  expect([...story.book.lanes.get("acme")!]).toEqual([second, first]);
  expect(first).toMatchObject({ place: "waiting", id: null, attempt: 0 });
  story.take(second!);
  story.take(first!);
  expect(story.suspects).toEqual([]);
  story.ack(first!);
  expect(story.book.counts).toMatchObject({ acked: 1, held: 1, dead: 0 });
});

test("what was there before, and what others publish", () => {
  const { book } = new Story();
  book.carry(1);
  const carried: Taken = { is: "took", id: "a", uid: "old-acme-7", key: "acme", n: 7, attempt: 1 };
  book.took(0, carried, LEASE_MS, 0);
  expect([book.published, book.carried]).toEqual([1, 0]);
  const foreign: Taken = { is: "took", id: "b", uid: "b", key: "stranger", n: null, attempt: 1 };
  expect(book.took(0, foreign, LEASE_MS, 0).lane).toBe(NO_KEY);
  expect([book.published, book.counts.held]).toEqual([2, 2]);
  expect(book.order.checked).toBe(0);
});

test("a refused publish leaves no trace, and ended messages are forgotten in time", () => {
  const story = new Story();
  const { book } = story;
  book.refused(book.send("acme"));
  expect([book.published, book.entries.size, book.counts.sending]).toEqual([0, 0, 0]);
  for (const entry of story.publish(600, NO_KEY)) {
    story.take(entry);
    story.ack(entry);
  }
  expect([book.counts.acked, book.entries.size]).toEqual([600, 500]);
});
