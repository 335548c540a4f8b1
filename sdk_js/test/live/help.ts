/** Small things that live tests need. */
import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import type { Message, Subscription } from "../../src/index.js";

export { sleep };

let last = 0;
/** A queue that nobody else uses. */
export const freshQueue = (): string => `q-${++last}`;

/** Wait until it is. */
export async function eventually(isTrue: () => boolean, seconds = 120): Promise<void> {
  const until = Date.now() + seconds * 1000;
  while (!isTrue()) {
    if (Date.now() > until) expect.fail(`it never came true: ${isTrue.toString()}`);
    await sleep(10);
  }
}

/** The next messages. */
export async function receive(
  subscription: Subscription,
  count: number,
  ms = 20_000,
): Promise<Message[]> {
  const found: Message[] = [];
  while (found.length < count) {
    const { value } = await subscription.next({ signal: AbortSignal.timeout(ms) });
    found.push(value!);
  }
  return found;
}

/** That no message comes. */
export async function nothing(subscription: Subscription, ms = 300): Promise<void> {
  await expect(receive(subscription, 1, ms)).rejects.toThrow(/timeout/i);
}

export const range = (count: number): number[] => Array.from({ length: count }, (_, at) => at);
