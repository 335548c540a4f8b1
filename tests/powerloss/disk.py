"""The disk: what a power cut leaves of a folder, after any part of a recorder's log.

Each file and folder has what is durable and what is only pending. Pending changes become durable
by a sync of that file or folder, begun after them; until then a power cut keeps or loses each one
by itself. A folder's changes are its names: a file that was created, written and synced is still
gone with its name when the folder was not synced. That is harder than most file systems are, and
what POSIX allows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from tests.powerloss.log import DamagedLog, Kind, Record

Lies = Callable[[str], bool]
"""Whether syncs of this path are ignored, as a disk does that lies, or a program that forgot."""


class Write(NamedTuple):
    offset: int
    data: bytes


class Resize(NamedTuple):
    size: int
    shrinks: bool = True
    """Space that is allocated in advance only ever adds to a file."""


Change = Write | Resize
Names = Mapping[str, int | None]
"""A change of a folder: name to the number of its file, None when the name goes away."""


class File:
    def __init__(self) -> None:
        self.durable = bytearray()
        self.pending: list[Change] = []
        self.settled = 0
        """How many changes became durable: the number of the first pending one."""

    def settle(self, upto: int) -> None:
        count = max(0, upto - self.settled)
        for change in self.pending[:count]:
            apply(self.durable, change)
        del self.pending[:count]
        self.settled += count


class Folder:
    def __init__(self) -> None:
        self.durable: dict[str, int] = {}
        self.pending: list[Names] = []
        self.settled = 0

    def settle(self, upto: int) -> None:
        count = max(0, upto - self.settled)
        for names in self.pending[:count]:
            rename(self.durable, names)
        del self.pending[:count]
        self.settled += count

    def now(self) -> dict[str, int]:
        """The names as the running system sees them."""
        names = dict(self.durable)
        for change in self.pending:
            rename(names, change)
        return names


def apply(content: bytearray, change: Change) -> None:
    if isinstance(change, Write):
        _grow(content, change.offset)
        content[change.offset : change.offset + len(change.data)] = change.data
    else:
        _grow(content, change.size)
        if change.shrinks:
            del content[change.size :]


def _grow(content: bytearray, size: int) -> None:
    if len(content) < size:
        content.extend(bytes(size - len(content)))


def rename(names: dict[str, int], change: Names) -> None:
    for name, number in change.items():
        if number is None:
            names.pop(name, None)
        else:
            names[name] = number


class Damage(Protocol):
    """What becomes of pending changes."""

    def changes(self, pending: list[Change]) -> list[Change]:
        """Those that reached the disk, in the order in which they are to be applied."""
        ...

    def names(self, pending: list[Names]) -> list[Names]: ...


class Disk:
    def __init__(self, lies: Lies = lambda path: False) -> None:
        self._lies = lies
        self._root = 0
        self._nodes: dict[int, File | Folder] = {}
        """By a number of our own: file systems use an inode again once its file is gone."""
        self._numbers: dict[int, int] = {}
        """By inode: the number of the file that has it now."""
        self._syncs: dict[int, tuple[File | Folder, int]] = {}
        """Begun and not ended: the node, and the change before which all becomes durable."""

    def feed(self, record: Record) -> None:
        kind, inode = record.kind, record.inode
        if kind is Kind.WRITE:
            self._file(inode).pending.append(Write(record.a, record.data))
        elif kind is Kind.TRUNCATE:
            self._file(inode).pending.append(Resize(record.a))
        elif kind is Kind.ALLOCATE:
            self._file(inode).pending.append(Resize(record.a, shrinks=False))
        elif kind is Kind.SYNC_BEGIN:
            if not self._lies(record.path):
                node = self._nodes[self._numbers[inode]]
                self._syncs[record.a] = node, node.settled + len(node.pending)
        elif kind is Kind.SYNC_END:
            if record.a in self._syncs:
                node, upto = self._syncs.pop(record.a)
                node.settle(upto)
        elif kind is Kind.BEGIN:
            self._syncs.clear()
            if inode not in self._numbers:
                self._root = self._add(inode, Folder())
        elif kind is not Kind.MARK:
            self._feed_name(record)

    def _feed_name(self, record: Record) -> None:
        folder, name = self._place(record.path)
        if record.kind in (Kind.CREATE, Kind.MKDIR):
            node = File() if record.kind is Kind.CREATE else Folder()
            folder.pending.append({name: self._add(record.inode, node)})
        elif record.kind is Kind.UNLINK:
            folder.pending.append({name: None})
        else:
            number = folder.now()[name]
            target, new = self._place(record.data.decode())
            if record.kind is Kind.LINK:
                target.pending.append({new: number})
            elif target is folder:
                folder.pending.append({new: number, name: None})
            else:
                raise DamagedLog("a rename from one folder to another is not modelled")

    def _add(self, inode: int, node: File | Folder) -> int:
        number = self._numbers[inode] = len(self._nodes)
        self._nodes[number] = node
        return number

    def _file(self, inode: int) -> File:
        node = self._nodes.get(self._numbers.get(inode, -1))
        if not isinstance(node, File):
            raise DamagedLog(f"a write to inode {inode}, which was never created")
        return node

    def _place(self, path: str) -> tuple[Folder, str]:
        folder = self._nodes[self._root]
        *parents, name = path.split("/")
        for parent in parents:
            assert isinstance(folder, Folder)
            folder = self._nodes[folder.now()[parent]]
        assert isinstance(folder, Folder)
        return folder, name

    @property
    def pending(self) -> int:
        """Changes that a power cut could take away."""
        return sum(len(node.pending) for node in self._nodes.values())

    def image(self, damage: Damage) -> dict[str, bytes | None]:
        """Relative path to content after a power cut; None is a folder."""
        image: dict[str, bytes | None] = {}
        self._collect(self._root, "", damage, image)
        return image

    def _collect(
        self, number: int, path: str, damage: Damage, image: dict[str, bytes | None]
    ) -> None:
        node = self._nodes[number]
        if isinstance(node, Folder):
            names = dict(node.durable)
            for change in damage.names(node.pending):
                rename(names, change)
            if path:
                image[path] = None
            for name, child in sorted(names.items()):
                self._collect(child, f"{path}/{name}" if path else name, damage, image)
        else:
            content = bytearray(node.durable)
            for kept in damage.changes(node.pending):
                apply(content, kept)
            image[path] = bytes(content)
