/** Receipts: `P.N` is the proof of one lease, `P.N-M` stands for a run of them. */

import { badRequest } from "./errors.js";
import { LIMITS } from "./tables.js";

/** Prefix, first and last number. */
export type Span = [prefix: string, first: number, last: number];

const MAX_RUN = LIMITS.run[0];
// P may hold dots and dashes itself: the last dot ends it.
const RECEIPT = /^([!-~]+)\.([1-9]\d{0,15})(?:-([1-9]\d{0,15}))?$/;

/** Read a receipt or a run. */
export function parse(receipt: string): Span {
  const found = receipt.length <= LIMITS.id[0] ? RECEIPT.exec(receipt) : null;
  const first = Number(found?.[2]);
  const last = Number(found?.[3] ?? first);
  if (!found || last < first || last > Number.MAX_SAFE_INTEGER || last - first >= MAX_RUN) {
    throw badRequest(`${JSON.stringify(receipt.slice(0, 40))} is no receipt`);
  }
  return [found[1]!, first, last];
}

/** The fewest receipts that name these numbers, which come in ascending order. */
export function compress(prefix: string, numbers: Iterable<number>): string[] {
  const runs: string[] = [];
  let first = 0;
  let last = 0;
  const end = () => {
    if (first) runs.push(`${prefix}.${first}${last > first ? `-${last}` : ""}`);
  };
  for (const number of numbers) {
    if (!first || number !== last + 1 || number - first >= MAX_RUN) {
      end();
      first = number;
    }
    last = number;
  }
  end();
  return runs;
}

/** Each receipt of these runs. */
export function* expand(receipts: Iterable<string>): Generator<string> {
  for (const receipt of receipts) {
    const [prefix, first, last] = parse(receipt);
    for (let number = first; number <= last; number++) yield `${prefix}.${number}`;
  }
}
