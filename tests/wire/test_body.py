from __future__ import annotations

import json
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from pushlane.wire.body import check_depth, check_json, check_text, copy_body
from pushlane.wire.errors import BadRequest
from tests.wire.strategies import bodies, values

GOOD = [
    b"null",
    b"0",
    b"-0",
    b"1E+5",
    b"1e999",
    b'""',
    b' {"a" : [1 , 2]}\n',
    b'{"a":1,"a":2}',
    b"9" * 5000,
    b"-" + b"9" * 5000,
    b"0." + b"9" * 5000,
    '"\u2028 ü 😀"'.encode(),
    b'"\\ud83d\\ude00"',
    b'"\\\\ud800"',
    b'"\x7f"',
    b'"\\u0000"',
]

BAD = [
    b"",
    b" ",
    b"nul",
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"01",
    b"1.",
    b".5",
    b"+1",
    b"0x10",
    b"1 2",
    b"[1,]",
    b'{"a":1,}',
    b"{a:1}",
    b"{1:2}",
    b"[1]]",
    b"'a'",
    b'"',
    b'"\\x41"',
    b'"\\u12"',
    b'"a\nb"',
    b'"\x00"',
    b"// no\n1",
    b"\xef\xbb\xbf1",
    "1".encode("utf-16"),
]


def nested(depth: int) -> list[bytes]:
    """Texts of this depth in several shapes."""
    return [
        b"[" * depth + b"]" * depth,
        b'{"[":' * depth + b"1" + b"}" * depth,
        b"[" * (depth % 2) + b'[{"a\\\\":' * (depth // 2) + b"1" + b"}]" * (depth // 2)
        + b"]" * (depth % 2),
        b'["]]]]", ' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"]",
    ]  # fmt: skip


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return 1 + max((depth_of(item) for item in value), default=0)
    return 0


@pytest.mark.parametrize("raw", GOOD, ids=lambda raw: repr(raw[:20]))
def test_json_passes(raw: bytes) -> None:
    check_json(raw)


@pytest.mark.parametrize("raw", BAD, ids=repr)
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest, match=r"^body is no"):
        check_json(raw)


@pytest.mark.parametrize(
    "raw", [b'"\xff"', b'"\xed\xa0\x80"', b'{"\xc3":1}', b'"\xf4\x90\x80\x80"', b'"\xc0\xaf"']
)
def test_what_is_not_utf8_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest, match=r"^body is not UTF-8: .* \(byte [12]\)"):
        check_json(raw)


@pytest.mark.parametrize(
    "raw", [b'"\\ud800"', b'"\\udc00 and more"', b'"\\ud800\\ud800"', b'{"\\udfff":1}']
)
def test_half_a_surrogate_pair_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest, match=r"^body is not JSON"):
        check_json(raw)


@pytest.mark.parametrize("raw", nested(500), ids=range(4))
def test_the_greatest_depth_passes(raw: bytes) -> None:
    check_json(raw)


@pytest.mark.parametrize("raw", nested(501), ids=range(4))
def test_one_level_more_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest, match="nested deeper than 500"):
        check_json(raw)


@pytest.mark.parametrize("depth", [5, 1000, 100_000])
@pytest.mark.parametrize("shape", range(4))
def test_depth_bombs_are_refused(depth: int, shape: int) -> None:
    with pytest.raises(BadRequest, match="nested deeper than"):
        check_json(nested(depth)[shape], depth=4)


def test_many_brackets_are_not_depth() -> None:
    check_json(b"[" + b"[],{}," * 2000 + b"1]")
    check_json(json.dumps("[" * 2000).encode())
    check_json(json.dumps(["[" * 2000, '"' + "{[" * 400, "\\"]).encode())


def test_a_bomb_that_never_ends_is_refused() -> None:
    with pytest.raises(BadRequest):
        check_json(b"[" * 1_000_000)


def test_close_to_the_recursion_limit_nothing_but_a_bad_request_comes_out() -> None:
    def down(calls: int) -> None:
        if calls:
            down(calls - 1)
        else:
            check_text(b"[" * 500 + b"]" * 500)

    with pytest.raises(BadRequest, match="nested deeper than 500"):
        down(sys.getrecursionlimit() - 400)


@given(values, st.booleans(), st.integers(0, 6))
def test_depth_is_what_a_parser_finds(value: Any, ascii_only: bool, limit: int) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only).encode()
    if depth_of(value) <= limit:
        check_depth(raw, limit)
        check_depth(Raw(raw), limit)
        check_json(raw, limit)
    else:
        with pytest.raises(BadRequest):
            check_depth(raw, limit)
        with pytest.raises(BadRequest):
            check_json(raw, limit)


def reference(raw: bytes) -> bool:
    """Whether the standard library takes this for JSON, without its extensions."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.dumps(json.loads(raw.decode(), parse_constant=refuse), ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    return True


@given(bodies, st.data())
@example(b'"\\ud800"', None)
def test_the_standard_library_agrees(raw: bytes, data: st.DataObject | None) -> None:
    text = bytearray(raw)
    if data is not None:
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(0, len(text)))
            text[at : at + data.draw(st.integers(0, 2))] = data.draw(
                st.binary(max_size=2)
                | st.sampled_from([b'"', b"\\", b"[", b"}", b"\\u", b"1", b","])
            )
    mutated = bytes(text)
    try:
        check_json(mutated)
    except BadRequest:
        assert not reference(mutated)
    else:
        assert reference(mutated)


@given(bodies)
def test_a_copy_is_the_same_bytes(raw: bytes) -> None:
    frame = b"[" + raw + b"]"
    (view,) = msgspec.json.decode(frame, type=list[Raw])
    assert copy_body(view) == raw.strip()
    assert type(copy_body(view)) is bytes
