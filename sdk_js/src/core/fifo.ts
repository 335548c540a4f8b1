/** A queue whose first is taken in constant time: Array.shift moves all that is behind. */

const COMPACT = 1024;

export class Fifo<T> {
  private _items: (T | undefined)[] = [];
  private _head = 0;

  get length(): number {
    return this._items.length - this._head;
  }

  get first(): T | undefined {
    return this._items[this._head];
  }

  push(item: T): void {
    this._items.push(item);
  }

  shift(): T | undefined {
    if (!this.length) return undefined;
    const item = this._items[this._head];
    this._items[this._head++] = undefined; // or it would live on, and what it refers to
    if (this._head >= COMPACT && this._head * 2 >= this._items.length) this._compact();
    return item;
  }

  /** Take these out, wherever they stand. */
  filter(isKept: (item: T) => boolean): void {
    this._compact();
    this._items = this._items.filter((item) => isKept(item!));
  }

  clear(): void {
    this._items = [];
    this._head = 0;
  }

  *[Symbol.iterator](): Generator<T> {
    for (let at = this._head; at < this._items.length; at++) yield this._items[at]!;
  }

  private _compact(): void {
    this._items = this._items.slice(this._head);
    this._head = 0;
  }
}
