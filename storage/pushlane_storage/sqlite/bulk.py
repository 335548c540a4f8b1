"""Rows that wait to be inserted together.

Every statement gives up the interpreter's lock and has to get it back, which on a busy server
can take as long as the statement itself. So rows are gathered, and go in with few statements of
many rows each.
"""

import sqlite3

CHUNKS = (64, 16, 4, 1)
"""Rows of one statement: few different statements, and few of them for any number of rows."""


class Bulk:
    def __init__(self, connection: sqlite3.Connection, table: str, columns: int) -> None:
        self._connection = connection
        self._columns = columns
        self._values: list[object] = []
        row = f"({','.join('?' * columns)})"
        self._statements = {
            rows: f"INSERT INTO {table} VALUES {','.join([row] * rows)}" for rows in CHUNKS
        }

    def add(self, row: tuple[object, ...]) -> None:
        self._values.extend(row)

    def flush(self) -> None:
        values, at = self._values, 0
        for rows in CHUNKS:
            width = rows * self._columns
            while len(values) - at >= width:
                self._connection.execute(self._statements[rows], values[at : at + width])
                at += width
        values.clear()

    def clear(self) -> None:
        self._values.clear()
