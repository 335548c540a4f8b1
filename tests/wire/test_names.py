from __future__ import annotations

import string
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.wire.errors import BadRequest
from pushlane.wire.names import (
    Target,
    check_queue_name,
    check_tenant_name,
    check_topic_name,
    parse_target,
)

CHECKS = [check_queue_name, check_topic_name, check_tenant_name]
INNER = string.ascii_letters + string.digits + "._-"
FIRST = INNER.replace(".", "")

names = st.builds(
    str.__add__, st.sampled_from(FIRST), st.text(st.sampled_from(INNER), max_size=119)
)


@pytest.mark.parametrize("check", CHECKS)
@given(name=names)
def test_good_names_pass_unchanged(check: Callable[[str], str], name: str) -> None:
    assert check(name) == name


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "queue name is empty"),
        ("x" * 121, "queue name has 121 characters: at most 120"),
        (".hidden", "queue name '.hidden' starts with a dot"),
        ("..", "starts with a dot"),
        ("a/b", "queue name 'a/b' has '/' at 1"),
        ("a b", "has ' ' at 1"),
        ("orders\n", r"has '\n' at 6"),
        ("ünder", r"'\xfcnder' has '\xfc' at 0"),
        ("topic:x", "topics are not supported yet"),
        ("\ud800", r"has '\ud800' at 0"),
        ("٣", "at 0"),
    ],
)
def test_bad_names_are_told_why(name: str, fault: str) -> None:
    with pytest.raises(BadRequest) as raised:
        check_queue_name(name)
    assert fault in raised.value.message
    raised.value.message.encode()


def test_the_longest_name_passes() -> None:
    assert check_queue_name("x" * 120)


@given(st.text(max_size=130))
def test_any_text_is_a_target_or_a_bad_request(text: str) -> None:
    try:
        target = parse_target(text)
    except BadRequest:
        return
    assert str(target) == text


@given(names)
def test_targets_round_trip(name: str) -> None:
    assert parse_target(name) == Target(name)
    assert parse_target(f"topic:{name}") == Target(name, is_topic=True)
    assert str(Target(name, is_topic=True)) == f"topic:{name}"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("topic:", "topic name is empty"),
        ("topic:topic:x", "topic name 'topic:x' has ':' at 5"),
        ("Topic:x", "queue name 'Topic:x' has ':' at 5"),
        ("topic:.x", "topic name '.x' starts with a dot"),
    ],
)
def test_bad_targets_are_told_why(text: str, fault: str) -> None:
    with pytest.raises(BadRequest, match="name") as raised:
        parse_target(text)
    assert fault in raised.value.message
