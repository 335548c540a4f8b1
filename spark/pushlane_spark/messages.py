"""Rows of any DataFrame as messages: which columns count, and what makes a row the same again.

`shaped` gives `OUTGOING`. Rows go together by key, else by content, and stand in order there: so
equal rows are neighbours, and the n-th of them is the n-th however often a task is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Raw
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    TimestampType,
)

from pushlane import BadRequest, Item, PushlaneError
from pushlane.wire.body import check_json
from pushlane_spark.errors import FrameUnfit
from pushlane_spark.frames import BYTES, LONG, TEXT, struct
from pushlane_spark.sending import Outgoing

OPTIONS = ("key", "dedup", "headers", "priority", "delay_ms", "ttl_ms", "event_at")
CONTENT = ("body", "data")
_NUMBERS = struct(priority=LONG, delay_ms=LONG, ttl_ms=LONG, event_at=LONG)
OUTGOING = struct(
    struct(body=TEXT, data=BYTES, key=TEXT, dedup=TEXT, headers=MapType(TEXT, TEXT)),
    _NUMBERS,
    struct(row=TEXT),
)
"""A message per row; `row` is a hash of all that the row had."""
_JSON = {"ignoreNullFields": "false"}


def shaped(df: DataFrame, *, order_by: Sequence[str] = (), parts: int) -> DataFrame:
    """`OUTGOING` in so many parts; `FrameUnfit`."""
    _check(df, order_by)
    columns = [_column(df, field.name, field.dataType) for field in OUTGOING.fields[:-1]]
    row = F.sha2(F.to_json(F.struct(*_quoted(df.columns)), _JSON), 256).alias("row")
    order = [F.col(f"`{name}`").alias(f"order_{n}") for n, name in enumerate(order_by)]
    rows = df.select(*columns, row, *order).repartition(parts, F.coalesce("key", "row"))
    sorted_by = [f"order_{n}" for n in range(len(order_by))]
    return rows.sortWithinPartitions("key", *sorted_by, "row").select(OUTGOING.names)


def _quoted(names: Iterable[str]) -> list[str]:
    return [f"`{name}`" for name in names]


def _check(df: DataFrame, order_by: Sequence[str]) -> None:
    names = df.columns
    if len({name.lower() for name in names}) < len(names):
        raise FrameUnfit(f"two columns have the same name: {', '.join(names)}")
    missing = [name for name in order_by if name not in names]
    if missing:
        raise FrameUnfit(f"order_by names {', '.join(missing)}: there is no such column")
    others = [name for name in names if name not in (*CONTENT, *OPTIONS)]
    if not {*CONTENT} & {*names}:
        if not others:
            raise FrameUnfit("there is nothing to publish: give a column body or data")
        return
    if left := [name for name in others if name not in order_by]:
        raise FrameUnfit(
            f"beside body and data there is no place for {', '.join(left)}: drop them, or put them"
            " into body"
        )


def _column(df: DataFrame, name: str, kind: DataType) -> Column:
    if name == "body":
        return _body(df).alias(name)
    if name not in df.columns:
        return F.lit(None).cast(kind).alias(name)
    found = df.schema[name].dataType
    if not _fits(name, found):
        raise FrameUnfit(f"column {name} is {found.simpleString()}: it must be {_wanted(name)}")
    column = F.unix_millis(name) if name == "event_at" else F.col(name)
    return column.cast(kind).alias(name)


def _fits(name: str, kind: DataType) -> bool:
    if name == "headers":
        return kind == MapType(TEXT, TEXT, True) or kind == MapType(TEXT, TEXT, False)
    if name in ("priority", "delay_ms", "ttl_ms"):
        return isinstance(kind, IntegralType)
    wanted = {"data": BinaryType, "event_at": TimestampType}
    return isinstance(kind, wanted.get(name, StringType))


def _wanted(name: str) -> str:
    numbers = dict.fromkeys(("priority", "delay_ms", "ttl_ms"), "an integer")
    others = {"data": "binary", "headers": "map<string,string>", "event_at": "a timestamp"}
    return {**numbers, **others}.get(name, "a string")


def _body(df: DataFrame) -> Column:
    """JSON text. Of a column that is none yet it is cut out of an object's."""
    if "body" not in df.columns:
        if "data" in df.columns:
            return F.lit(None).cast(TEXT)
        others = [name for name in df.columns if name not in OPTIONS]
        return F.to_json(F.struct(*_quoted(others)), _JSON)
    if isinstance(df.schema["body"].dataType, StringType):
        return F.col("body")
    text = F.to_json(F.struct(F.col("body")), _JSON)
    before = len('{"body":')
    inside = text.substr(F.lit(before + 1), F.length(text) - before - 1)
    return F.when(F.col("body").isNotNull(), inside)


# In tasks


def numbered(rows: Iterable[dict[str, Any]], run: str | None) -> Iterator[Outgoing]:
    """Messages with the dedup ids of a run, where the caller has none; without a run, with none."""
    last, count = None, 0
    for row in rows:
        count = count + 1 if row["row"] == last else 0
        last = row["row"]
        name = f"{last[:32]}:{count}"
        made = None if run is None else f"{run}:{name}"
        yield message_of(row, name, row["dedup"] if row["dedup"] is not None else made)


def message_of(row: dict[str, Any], name: str, dedup: str | None) -> Outgoing:
    """A row of `OUTGOING`, or of some of its columns."""
    try:
        body, data = row["body"], row["data"]
        if (body is None) == (data is None):
            raise BadRequest("give exactly one of body and data")
        headers = None if row["headers"] is None else dict(row["headers"])
        if headers is not None and None in headers.values():
            raise BadRequest("a header's value is null")
        content: dict[str, Any] = {"data": data} if body is None else {"body": _raw(body)}
        names = ("key", "priority", "delay_ms", "ttl_ms", "event_at")
        options = {option: row.get(option) for option in names}
        return Outgoing(name, Item(**content, **options, headers=headers, dedup=dedup))
    except PushlaneError as error:
        return Outgoing(name, error)


def _raw(text: str) -> Raw:
    found = text.encode()
    check_json(found)
    return Raw(found)
