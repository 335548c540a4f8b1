"""Rules: what they allow, and which are narrower than others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.wire.errors import BadRequest
from pushlane_gateway.auth.rule import (
    ACTIONS,
    MAX_RULES,
    Action,
    Rule,
    allow,
    covers,
    first_uncovered,
    parse_rule,
    parse_rules,
)
from pushlane_gateway.auth.rule import (
    patterns as patterns_of,
)

names = st.text("ab.-", min_size=1, max_size=4).filter(lambda name: name[0] != ".")
targets = st.builds(lambda kind, name: kind + name, st.sampled_from(["", "topic:"]), names)
patterns = st.one_of(
    st.just("*"), st.just("topic:*"), targets, targets.map(lambda name: name + "*")
)
actions = st.sampled_from(ACTIONS)
rules = st.builds(Rule, actions, patterns).filter(
    lambda rule: rule.action != "operate" or rule.pattern == "*"
)


@pytest.mark.parametrize(
    ("rule", "action", "name", "allowed"),
    [
        ("publish:orders", "publish", "orders", True),
        ("publish:orders", "publish", "orders2", False),
        ("publish:orders", "publish", "Orders", False),
        ("publish:orders", "consume", "orders", False),
        ("publish:orders*", "publish", "orders", True),
        ("publish:orders*", "publish", "orders.dead", True),
        ("publish:orders*", "publish", "order", False),
        ("publish:orders*", "publish", "topic:orders", False),
        ("publish:to*", "publish", "topic:orders", False),
        ("publish:topic:orders", "publish", "topic:orders", True),
        ("publish:topic:orders", "publish", "orders", False),
        ("publish:topic:or*", "publish", "topic:orders", True),
        ("publish:topic:*", "publish", "topic:orders", True),
        ("publish:topic:*", "publish", "orders", False),
        ("publish:*", "publish", "orders", True),
        ("publish:*", "publish", "topic:orders", True),
        ("publish:*", "manage", "orders", False),
        ("manage:*", "publish", "orders", False),
        ("manage:*", "admin", "orders", False),
        ("admin:*", "publish", "orders", True),
        ("admin:*", "consume", "topic:x", True),
        ("admin:*", "manage", "*", True),
        ("admin:orders*", "manage", "orders", True),
        ("admin:orders*", "manage", "bills", False),
        ("manage:orders*", "manage", "*", False),
        ("operate:*", "operate", "*", True),
        ("admin:*", "operate", "*", False),
        ("operate:*", "publish", "orders", False),
        ("operate:*", "admin", "*", False),
    ],
)
def test_what_a_rule_allows(rule: str, action: Action, name: str, allowed: bool) -> None:
    assert parse_rule(rule).allows(action, name) is allowed
    assert allow([Rule("consume", "nothing"), parse_rule(rule)], action, name) is allowed


@pytest.mark.parametrize(
    ("wide", "narrow", "covered"),
    [
        (["publish:*"], ["publish:orders"], True),
        (["publish:*"], ["publish:topic:*"], True),
        (["publish:a*"], ["publish:a"], True),
        (["publish:a*"], ["publish:a*"], True),
        (["publish:a*"], ["publish:ab*"], True),
        (["publish:ab*"], ["publish:a*"], False),
        (["publish:a"], ["publish:a*"], False),
        (["publish:a*"], ["publish:*"], False),
        (["publish:to*"], ["publish:topic:x"], False),
        (["publish:topic:*"], ["publish:x"], False),
        (["publish:a*"], ["consume:a"], False),
        (["publish:a*"], ["admin:a"], False),
        (["admin:*"], ["operate:*"], False),
        (["operate:*"], ["operate:*"], True),
        (["operate:*"], ["publish:a"], False),
        (["admin:a*"], ["publish:a", "consume:ab*", "admin:a"], True),
        (["admin:a*"], ["publish:a", "publish:b"], False),
        (["publish:a", "publish:b"], ["publish:b"], True),
        ([], ["publish:b"], False),
        (["publish:b"], [], True),
    ],
)
def test_what_is_narrower(wide: list[str], narrow: list[str], covered: bool) -> None:
    assert covers([parse_rule(text) for text in wide], map(parse_rule, narrow)) is covered


def test_the_first_that_is_too_much_is_named() -> None:
    wide = parse_rules(["publish:a"])
    assert str(first_uncovered(wide, parse_rules(["publish:a", "admin:a"]))) == "admin:a"


@given(rules, rules, actions, targets)
def test_what_is_covered_allows_nothing_more(
    wide: Rule, narrow: Rule, action: Action, name: str
) -> None:
    if wide.covers(narrow) and narrow.allows(action, name):
        assert wide.allows(action, name)


@given(rules)
def test_text_and_back(rule: Rule) -> None:
    assert parse_rule(str(rule)) == rule
    assert rule.covers(rule)


@pytest.mark.parametrize(
    "text",
    [
        *["", "publish", "publish:", ":orders", "PUBLISH:orders", "delete:orders", "*", "*:*"],
        *["publish:.hidden", "publish:a b", "publish:a*b", "publish:**", "publish:a:b"],
        *["publish:topic:", "publish:topic:topic:a", "publish:ä", "publish:a\n", "publish: a"],
        *["publish:" + "a" * 121, "publish:" + "a" * 121 + "*", "publish:" + "x" * 10_000 + " "],
    ],
)
def test_what_is_no_rule(text: str) -> None:
    with pytest.raises(BadRequest, match="rule") as fault:
        parse_rule(text)
    assert len(str(fault.value)) < 400


def test_several_at_least_one_and_not_too_many() -> None:
    assert parse_rules(["publish:a", "publish:a"]) == (Rule("publish", "a"),)
    assert len(parse_rules([f"publish:q{number}" for number in range(MAX_RULES)])) == MAX_RULES
    with pytest.raises(BadRequest, match="0 rules"):
        parse_rules([])
    with pytest.raises(BadRequest, match=f"1 to {MAX_RULES}"):
        parse_rules(f"publish:q{number}" for number in range(MAX_RULES + 1))


@pytest.mark.parametrize("text", ["operate:orders", "operate:orders*", "operate:topic:*"])
def test_to_operate_a_server_is_all_or_nothing(text: str) -> None:
    with pytest.raises(BadRequest, match=r"all or nothing: operate:\*"):
        parse_rule(text)


def test_the_queues_of_rules() -> None:
    texts = ["publish:a*", "admin:b", "consume:c", "publish:topic:d", "operate:*", "publish:a*"]
    rules = parse_rules(texts)
    assert patterns_of(rules, ("publish",)) == ("a*", "b")
    assert patterns_of(rules, ("consume", "manage")) == ("b", "c")
