/** The keys that messages are published with: one lane and one colour each. */

/** Named so that their first letters tell them apart without the colour. */
export const KEYS = ["acme", "birch", "cobalt", "dune", "ember", "fjord"] as const;

/** The lane of messages without a key: any order will do. */
export const NO_KEY = "no key";
export const LANES: readonly string[] = [...KEYS, NO_KEY];

/** Every third message has no key; the others take turns. */
export function laneOf(number: number): string {
  if (number % 3 === 2) return NO_KEY;
  return KEYS[(number - Math.floor(number / 3)) % KEYS.length]!;
}

/** The lane in which a message with this key is shown; keys of strangers have none of their own. */
export function laneOfKey(key: string | null): string {
  return key !== null && (KEYS as readonly string[]).includes(key) ? key : NO_KEY;
}
