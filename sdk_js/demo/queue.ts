/** A queue for this tab: kept over a reload, and never shared with another tab. */

const KEY = "pushlane-demo-queue";
const LETTERS = "abcdefghjkmnpqrstuvwxyz23456789";

const fresh = (): string =>
  Array.from(
    crypto.getRandomValues(new Uint8Array(4)),
    (byte) => LETTERS[byte % LETTERS.length],
  ).join("");

/** Holds a lock of that name for as long as the tab lives; false: another tab has it. */
const own = (name: string): Promise<boolean> =>
  new Promise((resolve) => {
    void navigator.locks.request(name, { ifAvailable: true }, (lock) => {
      resolve(lock !== null);
      return lock && new Promise(() => {});
    });
  });

export async function findQueue(): Promise<string> {
  let name = sessionStorage.getItem(KEY) ?? `orders-${fresh()}`;
  while (!(await own(`pushlane-demo/${name}`))) name = `orders-${fresh()}`;
  sessionStorage.setItem(KEY, name);
  return name;
}

/** Who published a message: this visit. */
export const freshRun = (): string => fresh();
