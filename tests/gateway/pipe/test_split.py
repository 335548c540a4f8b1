"""Requests that don't decode as a whole, cut into their frames."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane_gateway.pipe.split import MOST, split

values = st.recursive(
    st.none() | st.integers() | st.text('ab"\\[]{},é'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('ab"\\[]{},'), inner),
    max_leaves=8,
)


@given(st.lists(values, max_size=4), st.dictionaries(st.sampled_from(["pipe", "n", "x"]), values))
def test_frames_come_out_as_they_went_in(frames: list[object], fields: dict[str, object]) -> None:
    for body in ({**fields, "frames": frames}, {"frames": frames, **fields}):
        found = split(msgspec.json.format(msgspec.json.encode(body), indent=1))
        assert found is not None
        outer, pieces = found
        assert msgspec.json.decode(outer) == {**fields, "frames": []}
        assert [msgspec.json.decode(piece) for piece in pieces] == frames


def test_frames_that_no_decoder_reads() -> None:
    deep = b"[" * 20_000 + b"]" * 20_000
    outer, frames = split(b'{"n":1,"frames":["\\ud83d", %b ]}' % deep) or (b"", [])
    assert (outer, frames) == (b'{"n":1,"frames":[]}', [b'"\\ud83d"', deep])


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b'{"frames":5}',
        b'{"frames":[1',
        b'{"frames":["',
        b'{"a":{"frames":[1]}}',
        b'{"a":"frames","b":[1]}',
        b'{"frames":[' + b"[]," * MOST,
    ],
)
def test_where_there_are_none(text: bytes) -> None:
    assert split(text) is None


@pytest.mark.parametrize("text", [b'"\\' * 1_000_000, b'{"frames":["' + b"\\" * 1_000_000])
def test_hostile_text_is_read_once(text: bytes) -> None:
    assert split(text) is None
