/** Receipts: `P.N` is the proof of one lease, `P.N-M` stands for a run of them. */

import { MAX_RUN } from "./tables.js";

/** Prefix, first and last number. */
export type Span = [prefix: string, first: number, last: number];

// P may hold dots and dashes itself: the last dot ends it.
const RECEIPT = /^([!-~]+)\.([1-9]\d*)(?:-([1-9]\d*))?$/;

/** Read a receipt or a run; for what is none, no numbers of nobody. */
export function parse(receipt: string): Span {
  const [, prefix, low, high = low] = RECEIPT.exec(receipt) ?? [];
  const [first, last] = [+low!, +high!];
  const isSound = first <= last && last - first < MAX_RUN && Number.isSafeInteger(last);
  return isSound ? [prefix!, first, last] : ["", 1, 0];
}

/** The fewest receipts that name these numbers, which come in ascending order. */
export function compress(prefix: string, numbers: number[]): string[] {
  const runs: string[] = [];
  let first = numbers[0]!;
  numbers.forEach((number, at) => {
    if (numbers[at + 1] === number + 1 && number + 1 - first < MAX_RUN) return;
    runs.push(`${prefix}.${first}${number > first ? `-${number}` : ""}`);
    first = numbers[at + 1]!;
  });
  return runs;
}

/** Each receipt of these runs. */
export function expand(receipts: string[] = []): Set<string> {
  const found = new Set<string>();
  for (const receipt of receipts) {
    const [prefix, first, last] = parse(receipt);
    for (let number = first; number <= last; number++) found.add(`${prefix}.${number}`);
  }
  return found;
}
