"""Three replicas, each with rows of its own: what Cassandra keeps, and how it is read and repaired.

A plain write lands on each replica by itself, at any time or never. A read takes any two of them;
of each cell the greater stamp wins, at the same stamp the greater value. Where the two differ, what
was read is copied to both before the read is answered: those columns, and no others.

Lightweight transactions are decided in one order, which no replica need know yet: whoever reads at
SERIAL, or decides the next one, first commits to a quorum what was decided before.
"""

from __future__ import annotations

from collections.abc import Sequence

from pushlane_storage.cassandra.ring import Change, Delete, Range, Row, Table, Write
from tests.storage.cassandra.model_ring import Key, Partition, inside

COUNT = 3
QUORUM = 2

Place = tuple[str, Key]


class Replica:
    def __init__(self) -> None:
        self.partitions: dict[Place, Partition] = {}

    def partition(self, table: Table, key: Key) -> Partition:
        place = (table.name, key)
        found = self.partitions.get(place)
        if found is None:
            found = self.partitions[place] = Partition()
        return found

    def apply(self, write: Write | Delete, stamp: int) -> None:
        table, count = write.table, len(write.table.partition)
        if isinstance(write, Write):
            for row in write.rows:
                partition = self.partition(table, tuple(row[name] for name in table.partition))
                partition.put(tuple(row[name] for name in table.clustering), row, stamp)
            return
        partition = self.partition(table, write.key[:count])
        if len(write.key) == count:
            partition.gone = max(partition.gone, stamp)
        else:
            bury(partition, write.key[count:], stamp)


class Replicas:
    def __init__(self) -> None:
        self.nodes = [Replica() for _ in range(COUNT)]
        self.decided = Replica()
        """The rows of lightweight transactions, as they were decided."""
        self.repairs = 0
        self._clock = 1_700_000_000_000_000

    def stamp(self) -> int:
        """Greater than every one before."""
        self._clock += 1
        return self._clock

    def apply(self, write: Write | Delete, stamp: int, nodes: Sequence[int]) -> None:
        for node in nodes:
            self.nodes[node].apply(write, stamp)

    # Reading

    def read(self, range: Range, nodes: Sequence[int]) -> list[Row]:
        """What these replicas know together; then each of them knows it."""
        partitions = [self.nodes[node].partition(range.table, range.partition) for node in nodes]
        keys: set[Key] = set()
        for partition in partitions:
            keys.update(partition.rows)
        gone = max(partition.gone for partition in partitions)
        for partition in partitions:
            partition.gone = gone
        columns = range.columns or tuple(range.table.columns)
        found: list[Row] = []
        for key in sorted(keys, reverse=range.reverse):
            if inside(key, range.low, range.high):
                row = self._merge(range.table, partitions, key, columns)
                if row is not None:
                    found.append(row)
                    if len(found) == range.limit:
                        break
        return found

    def _merge(
        self, table: Table, partitions: Sequence[Partition], key: Key, columns: Sequence[str]
    ) -> Row | None:
        first = partitions[0]
        mine, after = first.rows.get(key), first.row_gone.get(key, -1)
        for other in partitions[1:]:
            if other.rows.get(key) != mine or other.row_gone.get(key, -1) != after:
                self._repair(table, partitions, key, columns)
                break
        row = first.live(key)
        return None if row is None else {name: row.get(name) for name in columns}

    def _repair(
        self, table: Table, partitions: Sequence[Partition], key: Key, columns: Sequence[str]
    ) -> None:
        self.repairs += 1
        wanted = {*columns, *table.key}
        for source in partitions:
            for target in partitions:
                if source is not target:
                    copy(source, target, key, wanted)

    # Lightweight transactions

    def decide(self, change: Change, quorum: Sequence[int]) -> bool:
        """Whether a change applies. It is decided then, and on no replica yet."""
        table, count = change.table, len(change.table.partition)
        partition = self.decided.partition(table, change.key[:count])
        place = change.key[count:]
        self.commit(table, change.key, quorum)
        old = partition.live(place) if place in partition.rows else None
        if change.expect is None:
            applies = old is None
        else:
            applies = old is not None and all(
                old.get(name) == value for name, value in change.expect.items()
            )
        if applies:
            ballot = self.stamp()
            if change.row is None:
                bury(partition, place, ballot)
            else:
                key = dict(zip(table.key, change.key, strict=True))
                partition.put(place, {**key, **change.row}, ballot)
        return applies

    def commit(self, table: Table, key: Key, nodes: Sequence[int]) -> None:
        """Tell these replicas what was decided of a row."""
        count = len(table.partition)
        source = self.decided.partition(table, key[:count])
        if key[count:] in source.rows:
            for node in nodes:
                target = self.nodes[node].partition(table, key[:count])
                copy(source, target, key[count:], set(table.columns))

    def serial(self, range: Range, quorum: Sequence[int]) -> list[Row]:
        """A read in the order of decisions: what was not committed is so now, on a quorum."""
        for place in self.decided.partition(range.table, range.partition).rows:
            self.commit(range.table, (*range.partition, *place), quorum)
        return self.read(range, quorum)


def bury(partition: Partition, place: Key, stamp: int) -> None:
    partition.row_gone[place] = max(partition.row_gone.get(place, -1), stamp)
    partition.rows.setdefault(place, {})


def copy(source: Partition, target: Partition, key: Key, columns: set[str]) -> None:
    """One row's cells of these columns, where the target has older ones or none."""
    if key in source.row_gone:
        bury(target, key, source.row_gone[key])
    cells = source.rows.get(key)
    if cells is None:
        return
    known = target.rows.setdefault(key, {})
    for name, cell in cells.items():
        if name in columns:
            old = known.get(name)
            if old is None or cell > old:
                known[name] = cell
