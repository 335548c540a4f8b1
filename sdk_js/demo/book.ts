/**
 * Every message that has not ended, where it is, and how many there were: what the page knows.
 *
 * It does no I/O: consumers, publishers and the server's explanations tell it what happened. What
 * it can't know is in doubt (`onDoubt`): the server is asked then, and answers with `explained`.
 */

import type { Explanation } from "pushlane";
import type { Entry, Place } from "./entry.js";
import { LANES, laneOfKey, NO_KEY } from "./keys.js";
import type { Taken } from "./letters.js";
import { blockers, Order } from "./order.js";

/** Ended messages that are remembered, for those who look at one just now. */
const ENDED = 500;
/** How long to wait before the server is asked again about what is on its way. */
const AGAIN_MS = 200;
const NOT_STORED = "it is not stored";

export class Book {
  readonly entries = new Map<string, Entry>();
  /** What has not ended, by lane, in order. */
  readonly lanes = new Map<string, Set<Entry>>(LANES.map((lane) => [lane, new Set()]));
  readonly counts: Record<Place, number> = {
    sending: 0, waiting: 0, retrying: 0, held: 0, dead: 0, acked: 0,
  }; // prettier-ignore
  readonly done = new Map<string, number>(LANES.map((lane) => [lane, 0]));
  readonly order = new Order();
  /** Confirmed by the server, or found there in the beginning. */
  published = 0;
  /** Found there in the beginning, and not seen since. */
  carried = 0;
  /** Confirmed twice, or delivered after it was: that must never be. */
  ackedTwice = 0;
  /** Somebody should have the server explain this one, not before `at`. */
  onDoubt: (entry: Entry, at: number) => void = () => {};
  onChange: (entry: Entry, was: Place) => void = () => {};
  /** The first should be over, since the second was delivered: somebody should ask. */
  onSuspect: (earlier: Entry, taken: Entry) => void = () => {};
  private ids = new Map<string, Entry>();
  private ended: Entry[] = [];
  private rank = 0;
  private last = new Map<string, number>();

  constructor(
    readonly run: string,
    private mostAttempts: number,
  ) {}

  byId(id: string): Entry | undefined {
    return this.ids.get(id);
  }

  /** Published here and not yet over, acks that are on their way included. */
  get unsettled(): number {
    return this.published - this.counts.acked;
  }

  /** Acks that were sent and are not confirmed. */
  get acking(): number {
    let count = 0;
    for (const lane of this.lanes.values()) {
      for (const entry of lane) if (entry.settling === "ack") count += 1;
    }
    return count;
  }

  /** What a consumer has, as far as we know; also what it is settling just now. */
  heldBy(holder: number): Entry[] {
    const all = [...this.lanes.values()].flatMap((lane) => [...lane]);
    return all.filter((entry) => entry.place === "held" && entry.holder === holder);
  }

  // Publishing

  /** A new message, on its way to the server. */
  send(lane: string, bug = 0): Entry {
    const n = (this.last.get(lane) ?? 0) + 1;
    this.last.set(lane, n);
    return this.add({
      uid: `${this.run}-${lane.replace(" ", "")}-${n}`,
      lane,
      n,
      bug,
      isOurs: true,
      place: "sending",
    });
  }

  /** The server has it. */
  stored(entry: Entry, id: string): void {
    this.know(entry, id);
    this.count(entry);
    if (entry.place === "sending") this.move(entry, "waiting");
  }

  /** The server refused it. */
  refused(entry: Entry): void {
    this.counts[entry.place] -= 1;
    this.forget(entry);
  }

  /** There are messages of an earlier visit. */
  carry(count: number): void {
    this.carried += count;
    this.published += count;
  }

  /** One of them, or one that somebody else published. */
  adopt(id: string, uid: string, key: string | null, n: number | null): Entry {
    const lane = laneOfKey(key);
    const entry = this.add({ uid, lane, n, bug: 0, isOurs: false, place: "waiting" });
    this.know(entry, id);
    if (this.carried > 0) {
      this.carried -= 1;
      entry.isStored = true;
    } else {
      this.count(entry);
    }
    return entry;
  }

  // Consuming

  took(holder: number, taken: Taken, leaseMs: number, now: number): Entry {
    const { id, uid, key, n, attempt } = taken;
    const entry = this.entries.get(uid) ?? this.adopt(id, uid, key, n);
    if (entry.place === "acked") {
      this.ackedTwice += 1;
      return entry;
    }
    this.know(entry, id);
    this.count(entry);
    this.check(entry);
    Object.assign(entry, { holder, attempt, settling: null, from: now, until: now + leaseMs });
    this.move(entry, "held");
    return entry;
  }

  extended(id: string, leaseMs: number, now: number): void {
    const entry = this.ids.get(id);
    if (entry?.place !== "held") return;
    Object.assign(entry, { from: now, until: now + leaseMs });
    this.move(entry, "held");
  }

  settling(id: string, how: "ack" | "nack"): void {
    const entry = this.ids.get(id);
    if (entry && entry.place !== "acked") entry.settling = how;
  }

  acked(id: string): void {
    const entry = this.ids.get(id);
    if (!entry) return;
    if (entry.place === "acked") this.ackedTwice += 1;
    else this.end(entry);
  }

  failed(id: string, error: string, now: number): void {
    const entry = this.ids.get(id);
    if (entry?.place !== "held") return;
    Object.assign(entry, { error, from: now, until: null });
    this.move(entry, "retrying");
    this.onDoubt(entry, now);
  }

  /** A consumer's lease is gone, or it doesn't know whether its settling counted. */
  lost(holder: number, id: string, now: number): void {
    const entry = this.ids.get(id);
    if (entry?.place !== "held" || entry.holder !== holder) return;
    entry.until = null;
    this.move(entry, "waiting");
    this.onDoubt(entry, now);
  }

  // What the server says

  /** What became of a message, as of now. */
  explained(entry: Entry, explanation: Explanation, now: number): void {
    const { state, why, until, error, attempts } = explanation;
    if (entry.place === "acked") return;
    if (error) entry.error = error;
    switch (state) {
      case "acked":
        return this.end(entry);
      case "dead":
        return this.died(entry, error ?? entry.error, attempts ?? entry.attempt);
      case "retrying":
      case "delayed":
        Object.assign(entry, { settling: null, until: until ?? now });
        return this.move(entry, "retrying");
      case "leased":
      case "reserved": // a consumer has it who can't tell us, or just got it
        if (until) this.onDoubt(entry, until);
        return;
      case "leaving":
        return this.onDoubt(entry, now + AGAIN_MS);
      case "ready":
      case "blocked":
        Object.assign(entry, { settling: null, until: null });
        return this.move(entry, "waiting");
      case "unknown": // its whole time has ended; whatever died is among the dead letters
        if (why !== NOT_STORED && entry.place !== "dead") this.end(entry);
    }
  }

  died(entry: Entry, error: string | null, attempts: number): void {
    if (entry.place === "acked" || entry.place === "dead") return;
    Object.assign(entry, { error, attempt: attempts, settling: null, until: null });
    this.move(entry, "dead");
  }

  /** All dead ones go back to the end of their lanes. */
  redriven(): void {
    for (const entry of this.entries.values()) {
      if (entry.place !== "dead") continue;
      Object.assign(entry, { rank: ++this.rank, isRedriven: true, id: null, attempt: 0 });
      const lane = this.lanes.get(entry.lane)!;
      lane.delete(entry);
      lane.add(entry);
      this.move(entry, "waiting");
    }
  }

  // Behind the scenes

  private add(given: Pick<Entry, "uid" | "lane" | "n" | "bug" | "isOurs" | "place">): Entry {
    const entry: Entry = {
      ...given,
      id: null,
      ids: [],
      rank: ++this.rank,
      isRedriven: false,
      isStored: false,
      settling: null,
      holder: null,
      attempt: 0,
      from: 0,
      until: null,
      error: null,
      changes: 0,
    };
    this.entries.set(entry.uid, entry);
    this.lanes.get(entry.lane)!.add(entry);
    this.counts[entry.place] += 1;
    return entry;
  }

  private know(entry: Entry, id: string): void {
    if (entry.id === id) return;
    entry.id = id;
    entry.ids.push(id);
    this.ids.set(id, entry);
  }

  /** It is stored, whoever says so first. */
  private count(entry: Entry): void {
    if (!entry.isStored) this.published += 1;
    entry.isStored = true;
  }

  private move(entry: Entry, place: Place): void {
    const was = entry.place;
    this.counts[was] -= 1;
    this.counts[place] += 1;
    entry.place = place;
    entry.changes += 1;
    this.onChange(entry, was);
  }

  private end(entry: Entry): void {
    this.move(entry, "acked");
    this.done.set(entry.lane, this.done.get(entry.lane)! + 1);
    this.lanes.get(entry.lane)!.delete(entry);
    this.ended.push(entry);
    if (this.ended.length > ENDED) this.forget(this.ended.shift()!);
  }

  private forget(entry: Entry): void {
    this.entries.delete(entry.uid);
    this.lanes.get(entry.lane)!.delete(entry);
    for (const id of entry.ids) this.ids.delete(id);
  }

  private check(entry: Entry): void {
    if (entry.lane === NO_KEY || !entry.isOurs) return;
    this.order.took(entry.lane, entry.n!);
    for (const earlier of blockers(this.lanes.get(entry.lane)!, entry, this.mostAttempts)) {
      this.onSuspect(earlier, entry);
    }
  }
}
