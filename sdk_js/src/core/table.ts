/**
 * Things by number, for many that come and go.
 *
 * A Map would do, but V8 links the stores that a Map outgrows: once one of them is old, all that was
 * ever in the later ones lives until the next full collection, which took a third of a busy
 * client's time. Objects with numbers for names have no such links.
 */
export class Table<T> {
  count = 0;
  private _items: Record<number, T> = {};

  find(number: number): T | undefined {
    return this._items[number];
  }

  /** Put it in, where there was none. */
  put(number: number, item: T): void {
    this._items[number] = item;
    this.count += 1;
  }

  /** Take it out, if it is there. */
  drop(number: number): T | undefined {
    const item = this._items[number];
    if (item) {
      delete this._items[number];
      this.count -= 1;
    }
    return item;
  }

  /** In order of their numbers. */
  all(): T[] {
    return Object.values(this._items);
  }
}
