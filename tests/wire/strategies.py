"""What clients and servers might say, for Hypothesis."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from msgspec import UNSET, Raw

from pushlane.wire import frames
from pushlane.wire.limits import MAX_INT

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
tokens = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=128)
ids = st.integers(1, MAX_INT)
counts = st.integers(0, MAX_INT)
prefixes = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=90)
receipts = st.builds("{}.{}".format, prefixes, ids)
held = st.dictionaries(ids.map(str), st.lists(receipts, max_size=3), max_size=3)
headers = st.dictionaries(texts, texts, max_size=3)


def _spaced(value: Any, indent: int | None, ascii_only: bool, space: str) -> bytes:
    between = (space + ",", space + ":" + space)
    return json.dumps(value, indent=indent, ensure_ascii=ascii_only, separators=between).encode()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.text('[]{}"\\', max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip

bodies = st.builds(
    _spaced, values, st.sampled_from([None, 0, 2]), st.booleans(), st.sampled_from(["", " ", "\n"])
)
raws = bodies.map(Raw)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


contents = st.one_of(
    raws.map(lambda raw: {"body": raw, "data": None}),
    st.binary(max_size=20).map(lambda data: {"body": UNSET, "data": data}),
)


@st.composite
def publish_messages(draw: st.DrawFn) -> frames.PublishMessage:
    return frames.PublishMessage(
        **draw(contents),
        key=draw(optional(texts)),
        dedup=draw(optional(texts)),
        priority=draw(optional(st.integers(0, 9))),
        delay_ms=draw(optional(counts)),
        ttl_ms=draw(optional(ids)),
        headers=draw(optional(headers)),
        seq=draw(optional(ids)),
        event_at=draw(optional(counts)),
    )


@st.composite
def deliver_messages(draw: st.DrawFn) -> frames.DeliverMessage:
    return frames.DeliverMessage(
        id=draw(tokens),
        attempt=draw(counts),
        published_at=draw(counts),
        **draw(contents),
        receipt=draw(optional(receipts)),
        fence=draw(optional(counts)),
        lease_ms=draw(optional(counts)),
        key=draw(optional(texts)),
        headers=draw(optional(headers)),
        dead=draw(optional(dead_infos)),
    )


resumes = st.builds(frames.Resume, tokens, held)
dead_infos = st.builds(frames.DeadInfo, texts, texts, tokens, counts, counts, optional(texts))
failures = st.builds(frames.Failed, counts, texts, texts, optional(counts))
settles = (ids, st.lists(receipts, max_size=3))

client_frames: st.SearchStrategy[frames.ClientFrame] = st.one_of(
    st.builds(frames.Hello, optional(texts), optional(tokens), optional(tokens), optional(resumes)),
    st.builds(frames.Publish, ids, texts, st.lists(publish_messages(), max_size=3)),
    st.builds(
        frames.Subscribe,
        ids,
        texts,
        counts,
        st.sampled_from(["explicit", "none"]),
        st.sampled_from(["delivery", "explicit"]),
        optional(counts),
    ),
    st.builds(frames.Start, *settles, optional(ids)),
    st.builds(frames.Ack, *settles, optional(ids)),
    st.builds(
        frames.Nack, *settles, optional(counts), optional(texts), st.booleans(), optional(ids)
    ),
    st.builds(frames.Extend, *settles, counts, optional(ids)),
    st.builds(frames.Credit, ids, counts),
    st.builds(frames.Unsubscribe, ids, ids),
)

server_frames: st.SearchStrategy[frames.ServerFrame] = st.one_of(
    st.builds(
        frames.Welcome,
        tokens,
        texts,
        texts,
        st.booleans(),
        counts,
        counts,
        counts,
        st.dictionaries(texts, counts, max_size=3),
        held,
    ),
    st.builds(
        frames.Published,
        ids,
        st.lists(optional(tokens), max_size=3),
        st.lists(counts, max_size=3),
        st.lists(failures, max_size=2),
    ),
    st.builds(frames.Subscribed, ids, ids),
    st.builds(frames.Done, ids, st.lists(receipts, max_size=2), st.lists(receipts, max_size=2)),
    st.builds(frames.Deliver, ids, st.lists(deliver_messages(), max_size=3), counts),
    st.builds(frames.LeaseLostFrame, *settles),
    st.builds(frames.Ended, ids, texts, texts),
    st.builds(frames.Beat, counts),
    st.builds(frames.Goaway, texts, counts),
    st.builds(
        frames.ErrorFrame,
        texts,
        texts,
        optional(counts),
        optional(ids),
        optional(texts),
        optional(ids),
    ),
)
