/**
 * Things by number, for many that come and go.
 *
 * A Map would do, but V8 links the stores that a Map outgrows: once one of them is old, all that was
 * ever in the later ones lives until the next full collection, which took a third of a busy
 * client's time. Objects with numbers for names have no such links.
 */
export class Table<T> {
  size = 0;
  private _items: Record<number, T> = {};

  get(number: number): T | undefined {
    return this._items[number];
  }

  /** Put it in, where there was none. */
  add(number: number, item: T): void {
    this._items[number] = item;
    this.size += 1;
  }

  /** Whether it was there. */
  delete(number: number): boolean {
    const isThere = number in this._items;
    if (isThere) {
      delete this._items[number];
      this.size -= 1;
    }
    return isThere;
  }

  /** In order of their numbers. */
  values(): T[] {
    return Object.values(this._items);
  }

  clear(): void {
    this._items = {};
    this.size = 0;
  }
}
