/** What can be set in the page's address, such as `?lease=2000`: its name, default and bounds. */

export const BOUNDS = {
  /** How long a consumer may hold a message, in milliseconds. */
  lease: [6000, 1000, 60_000],
  /** How long a message takes a consumer that works, on average. */
  work: [900, 10, 60_000],
  /** The backoff before the second attempt; it doubles from there. */
  backoff: [3000, 100, 60_000],
  /** How often a message is tried before it is a dead letter. */
  attempts: [3, 1, 20],
  /** How many messages a consumer may hold. */
  credit: [4, 1, 8],
  /** How many consumers there are in the beginning. */
  consumers: [4, 1, 6],
} as const;

/** Consumers that the page has room for. */
export const MOST_CONSUMERS = BOUNDS.consumers[2];
/** Messages that have not ended; the page draws each of them. */
export const MOST_ENTRIES = 3000;

type Name = keyof typeof BOUNDS;
export type DemoSettings = Readonly<Record<Name, number>>;

/** The settings of an address. What is no number, or out of bounds, is an error for people. */
export function readSettings(search: string): DemoSettings {
  const found: Record<string, number> = {};
  for (const [name, [byDefault]] of Object.entries(BOUNDS)) found[name] = byDefault;
  for (const [name, text] of new URLSearchParams(search)) {
    const bounds = BOUNDS[name as Name];
    if (!bounds) throw new Error(`there is no setting ${name}: ${Object.keys(BOUNDS).join(", ")}`);
    const [, least, most] = bounds;
    const value = Number(text);
    if (!(Number.isInteger(value) && value >= least && value <= most)) {
      throw new Error(`${name} is ${text}: an integer from ${least} to ${most}`);
    }
    found[name] = value;
  }
  return found as DemoSettings;
}
