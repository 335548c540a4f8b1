/** The leases of a subscription, by receipt. */

import type { Lease } from "./lease.js";
import { Table } from "./table.js";

export class Held {
  size = 0;
  /** There is a prefix for each shard: few, and they stay. */
  private _tables = new Map<string, Table<Lease>>();

  get(receipt: string): Lease | undefined {
    const dot = receipt.lastIndexOf(".");
    return this._tables.get(receipt.slice(0, dot))?.get(Number(receipt.slice(dot + 1)));
  }

  /** Put it in; false when it is there already. */
  add(lease: Lease): boolean {
    let table = this._tables.get(lease.prefix);
    if (!table) this._tables.set(lease.prefix, (table = new Table()));
    if (table.get(lease.number)) return false;
    table.add(lease.number, lease);
    this.size += 1;
    return true;
  }

  delete({ prefix, number }: Lease): void {
    if (this._tables.get(prefix)?.delete(number)) this.size -= 1;
  }

  values(): Lease[] {
    return [...this._tables.values()].flatMap((table) => table.values());
  }

  clear(): void {
    this._tables.clear();
    this.size = 0;
  }
}
