"""The configuration itself: what follows from it, and how it shows itself."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.wire.limits import Limits
from pushlane_dispatcher.node import Bounds
from pushlane_gateway.auth.secret import Secret
from pushlane_gateway.auth.settings import AuthSettings
from pushlane_gateway.configuration.configuration import DERIVED, Configuration
from pushlane_gateway.configuration.errors import ConfigurationError
from pushlane_gateway.configuration.known import describe, known_keys
from pushlane_gateway.configuration.load import load, load_with_sources
from pushlane_gateway.configuration.show import show, toml
from pushlane_gateway.configuration.sources import FLAGS


def test_where_keys_are_kept() -> None:
    assert Configuration().keys_file == Path("pushlane-data", "keys.json")
    assert Configuration(store="sqlite:/d").keys_file == Path("/d/keys.json")
    assert Configuration(store="memory:").keys_file is None
    auth = AuthSettings(keys_file="/k")
    assert Configuration(store="memory:", auth=auth).keys_file == Path("/k")


def test_what_follows_from_other_sections() -> None:
    found = Configuration(limits=Limits(credit=5), shard=Bounds(credit=7, flushes=3))
    assert (found.bounds.credit, found.bounds.flushes) == (5, 3)
    for name in DERIVED:
        section, field = name.split(".")
        assert hasattr(getattr(found, section), field), "the field is still there"
        assert name not in known_keys()


def test_one_that_exists_is_valid() -> None:
    with pytest.raises(ValueError, match="empty"):
        Configuration(listen=())


def test_every_key_has_a_type_a_default_and_a_reason() -> None:
    for key in describe():
        assert key.type in (int, bool, str) or key.is_list or key.choices, key.name
        assert key.default is not None or key.optional, key.name
        assert len(key.reason) > 10 or key.reason.startswith("…"), key.name
        assert "\n" not in key.reason
        if key.type is int and key.default is not None:
            assert key.holds(key.default), key.name


def test_every_field_of_every_section_is_a_key() -> None:
    def fields(struct: msgspec.Struct, above: str = "") -> set[str]:
        found = set()
        for name in struct.__struct_fields__:
            value = getattr(struct, name)
            inner = isinstance(value, msgspec.Struct)
            found |= fields(value, f"{above}{name}.") if inner else {above + name}
        return found

    assert {key.name for key in Configuration.describe()} == (
        fields(Configuration()) - set(DERIVED) | {"data"}
    )


def test_no_two_keys_share_a_variable() -> None:
    variables = [key.variable for key in known_keys().values()]
    assert len(set(variables)) == len(variables)
    assert "PUSHLANE_QUEUES_TEMPLATE_LEASE_MS" in variables


def test_flags_set_keys_that_exist() -> None:
    assert set(FLAGS.values()) <= set(known_keys())


def test_every_key_can_be_set_to_its_default_by_each_source() -> None:
    for key in known_keys().values():
        if key.default is None or key.name in ("data", "store"):
            continue
        text = ",".join(key.default) if key.is_list else str(key.default)
        assert load(environment={key.variable: text}) == Configuration(), key.name
        assert load(environment={}, settings=[f"{key.name}={text}"]) == Configuration(), key.name


# Showing it


def test_windows_that_could_not_go_on_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="windows_bytes is 5000, too little for open_sh"):
        load(environment={}, settings=["dispatcher.windows_bytes=5000"])


def test_shards_go_by_the_shares() -> None:
    found = load(environment={}, settings=["shares.key_percent=25"])
    assert found.bounds.producer_percent == 25


def test_what_is_shown_can_be_read_in_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    changed = load(
        environment={"PUSHLANE_LISTEN": "127.0.0.1:0,unix:/a b/ü"},
        settings=["limits.batch=5", "auth.required=true", "queues.template.dead_letter="],
    )
    Path("shown.toml").write_text(show(changed))
    assert load("shown.toml", environment={}) == changed
    assert changed != Configuration()


def test_it_says_where_a_value_was_set() -> None:
    found, sources = load_with_sources(environment={"PUSHLANE_LIMITS_BATCH": "5"})
    lines = show(found, sources).splitlines()
    assert "batch = 5  # PUSHLANE_LIMITS_BATCH" in lines
    assert "credit = 10000" in lines
    assert "# keys_file is not set" in lines


def test_secrets_are_masked() -> None:
    secret = "x" * 40
    auth = AuthSettings(signing_secrets=(Secret(secret), Secret(secret + "y")))
    text = show(Configuration(auth=auth, leases="redis://user:pass@host/0"))
    assert secret not in text
    assert '# signing_secrets: ["***", "***"]' in text
    assert 'leases = "redis://***@host/0"' in text
    assert "# signing_secrets: not set" in show(Configuration())


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:hidden@host:6379/0",
        "redis://:hid@hidden@host/0",
        "redis://:hidden/hid@host/0",
        "redis://:hidden?hid#@host/0",
        'redis://:hidden"\\ \u00fc@host/0',
        "cassandra://user:hidden@a,b:9042/pushlane?tls=on",
        "rediss://host/0?ssl_keyfile_password=hidden&client_name=x",
        "rediss://user:hidden@host/0?db=1&ssl_keyfile_password=hidden",
    ],
)
def test_no_password_of_a_url_is_shown(url: str) -> None:
    for text in (show(Configuration(leases=url)), show(Configuration(store=url))):
        assert "hid" not in text.replace("hidden_", "")
        assert f"{url.partition(':')[0]}://" in text
        assert "***" in text


@given(
    st.text(st.characters(exclude_categories=["Cs"]))
    | st.integers(-(2**63), 2**63 - 1)
    | st.booleans()
    | st.lists(st.text("a\"\\\n\x00\x7f\x1fü😀'"))
)
def test_values_are_written_as_toml_reads_them(value: object) -> None:
    assert tomllib.loads(f"a = {toml(value)}") == {"a": value}
