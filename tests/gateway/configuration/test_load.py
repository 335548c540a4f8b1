"""Three sources, one configuration: who wins, and what is said of what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pushlane.wire.limits import LIMITS, MAX_INT
from pushlane_gateway.auth.secret import MASK, Secret
from pushlane_gateway.configuration.configuration import Configuration
from pushlane_gateway.configuration.errors import ConfigurationError
from pushlane_gateway.configuration.load import load, load_with_sources


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def toml(text: str, name: str = "pushlane.toml") -> None:
    Path(name).write_text(text)


def faults(**arguments: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as refusal:
        load(**{"environment": {}, **arguments})
    return str(refusal.value).splitlines()


# Sources


def test_nothing_set_is_all_defaults() -> None:
    assert load(environment={}) == Configuration()


def test_the_environment_of_the_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUSHLANE_LIMITS_BATCH", "7")
    assert load().limits.batch == 7


def test_roles() -> None:
    assert load(environment={}).roles == ("gateway", "dispatcher")
    variables = {"PUSHLANE_ROLES": "dispatcher", "PUSHLANE_STORE": "cassandra://a/b"}
    assert load(environment=variables).roles == ("dispatcher",)
    flags = {"roles": ["gateway"]}
    assert load(flags=flags, environment=variables).roles == ("gateway",)
    both = {"PUSHLANE_ROLES": "dispatcher, gateway"}
    assert load(environment=both).roles == ("dispatcher", "gateway")


def test_later_sources_win() -> None:
    toml("[limits]\nbatch = 1\nsubs = 1\ncredit = 1\nunanswered = 1\n")
    variables = {"PUSHLANE_LIMITS_SUBS": "2", "PUSHLANE_LIMITS_CREDIT": "2"}
    found, sources = load_with_sources(environment=variables, settings=["limits.credit=3"])
    assert (found.limits.batch, found.limits.subs, found.limits.credit) == (1, 2, 3)
    assert sources == {
        "limits.batch": "pushlane.toml: limits.batch",
        "limits.subs": "PUSHLANE_LIMITS_SUBS",
        "limits.credit": "--set limits.credit",
        "limits.unanswered": "pushlane.toml: limits.unanswered",
    }


def test_flags_win_over_the_environment() -> None:
    variables = {"PUSHLANE_LISTEN": "127.0.0.1:1", "PUSHLANE_LOG_LEVEL": "debug"}
    flags = {"listen": ["127.0.0.1:2", "[::1]:2"], "log-level": None, "insecure": True}
    found = load(flags=flags, environment=variables)
    assert found.listen == ("127.0.0.1:2", "[::1]:2")
    assert found.log.level == "debug"
    assert found.auth.insecure


def test_which_file() -> None:
    toml("[limits]\nbatch = 1\n")
    toml("[limits]\nbatch = 2\n", "two.toml")
    toml("[limits]\nbatch = 3\n", "three.toml")
    variables = {"PUSHLANE_CONFIG": "two.toml"}
    assert load(environment={}).limits.batch == 1
    assert load(environment=variables).limits.batch == 2
    assert load("three.toml", environment=variables).limits.batch == 3


def test_every_section_can_be_set() -> None:
    toml(
        """
        listen = "unix:/run/socket"
        store = "memory:"
        leases = "memory:"
        auth.required = true
        tls = {certificate = "a", key = "b"}
        log.format = "json"
        limits.message_bytes = 1_024
        gateway.unix_mode = 0o600
        session.slow_ms = 5
        dispatcher.idle_ms = 6
        shard.flushes = 7
        sqlite.reserve_bytes = 0
        [queues]
        auto_create = false
        [queues.template]
        max_message_bytes = 1000
        dead_letter = ""
        overflow = "drop_oldest"
        """
    )
    found = load(environment={})
    assert (found.listen, found.store) == (("unix:/run/socket",), "memory:")
    assert found.auth.required
    assert (found.tls.certificate, found.tls.key, found.log.format) == ("a", "b", "json")
    assert (found.limits.message_bytes, found.gateway.unix_mode) == (1024, 0o600)
    assert (found.session.slow_ms, found.dispatcher.idle_ms) == (5, 6)
    assert (found.shard.flushes, found.sqlite.reserve_bytes) == (7, 0)
    assert not found.queues.auto_create
    assert (found.queues.template.dead_letter, found.queues.template.overflow) == (
        "",
        "drop_oldest",
    )


def test_texts_are_read_as_what_their_key_takes() -> None:
    variables = {
        "PUSHLANE_LISTEN": "127.0.0.1:1, [::1]:1,",
        "PUSHLANE_GATEWAY_UNIX_MODE": "0o640",
        "PUSHLANE_LIMITS_FRAME_BYTES": "8_388_608",
        "PUSHLANE_AUTH_REQUIRED": "TRUE",
        "PUSHLANE_AUTH_INSECURE": "0",
        "PUSHLANE_AUTH_KEYS_FILE": "true",
        "PUSHLANE_AUTH_ALLOWED_ORIGINS": "",
        "PUSHLANE_QUEUES_TEMPLATE_LEASE_MS": "5000",
        "PUSHLANE_QUEUES_TEMPLATE_DEAD_LETTER": "",
    }
    found = load(environment=variables)
    assert found.listen == ("127.0.0.1:1", "[::1]:1")
    assert (found.gateway.unix_mode, found.limits.frame_bytes) == (0o640, 8_388_608)
    assert found.auth.required
    assert not found.auth.insecure
    assert (found.auth.keys_file, found.auth.allowed_origins) == ("true", ())
    assert (found.queues.template.lease_ms, found.queues.template.dead_letter) == (5000, "")


# data is short for store


def test_data_is_short_for_store_and_the_later_source_wins() -> None:
    toml('store = "memory:"')
    assert load(environment={}).folder is None
    assert load(environment={"PUSHLANE_DATA": "d"}).store == "sqlite:d"
    assert load(flags={"data": "e"}, environment={"PUSHLANE_STORE": "memory:"}).store == "sqlite:e"
    assert load(flags={"store": "memory:"}, environment={"PUSHLANE_DATA": "d"}).store == "memory:"


def test_both_in_one_source_contradict_each_other() -> None:
    assert faults(flags={"data": "d", "store": "memory:"}) == [
        "--data and --store are both set: the first is short for the second"
    ]


# The client's and others' variables


def test_the_clients_and_other_peoples_variables_are_left_alone() -> None:
    variables = {
        "PUSHLANE_URL": "ws://localhost",
        "PUSHLANE_TOKEN": "plk_secret",
        "PUSHLANE_SERVICE_HOST": "10.0.0.1",
        "PUSHLANE_SERVICE_PORT": "8420",
        "PUSHLANE_SERVICE_PORT_HTTP": "8420",
        "PUSHLANE_PORT": "tcp://10.0.0.1:8420",
        "PUSHLANE_PORT_8420_TCP": "tcp://10.0.0.1:8420",
        "PUSHLANE_PORT_8420_TCP_ADDR": "10.0.0.1",
        "PATH": "/bin",
        "pushlane_listen": "nowhere",
    }
    assert load(environment=variables) == Configuration()


# Unknown keys


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("listne = 1", "listne: no such key; did you mean listen?"),
        ("[limits]\nbacth = 1", "limits.bacth: no such key; did you mean limits.batch?"),
        ("batch = 1", "batch: no such key; did you mean limits.batch?"),
        ("[auth]\nbatch = 1", "auth.batch: no such key; did you mean limits.batch?"),
        ("[limit]\nbatch = 1", "limit: no such key; did you mean limits?"),
        ("[shard]\ncredit = 1", "shard.credit: no such key; did you mean limits.credit?"),
        ("[queues.template]\nlease = 1",
         "queues.template.lease: no such key; did you mean queues.template.lease_ms?"),
        ("[session]\nauto_create = true",
         "session.auto_create: no such key; did you mean queues.auto_create?"),
        ("zzzzzzzz = 1", "zzzzzzzz: no such key"),
        ("limits = 1", "limits is a section: write [limits]"),
        ("queues.template = []", "queues.template is a section: write [queues.template]"),
        ("[listen]\na = 1", "listen is {'a': 1}: a list of strings"),
    ],
)  # fmt: skip
def test_unknown_keys_of_the_file(text: str, fault: str) -> None:
    toml(text)
    assert faults() == [f"pushlane.toml: {fault}"]


def test_unknown_variables() -> None:
    variables = {"PUSHLANE_LIMITS_BACTH": "1", "PUSHLANE_Q": "1", "PUSHLANE_LISTEN_": "1"}
    unknown = "environment: no such variable as"
    assert faults(environment=variables) == [
        f"{unknown} PUSHLANE_LIMITS_BACTH; did you mean PUSHLANE_LIMITS_BATCH?",
        f"{unknown} PUSHLANE_LISTEN_; did you mean PUSHLANE_LISTEN?",
        f"{unknown} PUSHLANE_Q",
    ]


def test_unknown_settings() -> None:
    assert faults(settings=["limits.bach=1", "limits.batch", "=1"]) == [
        "--set limits.bach: no such key; did you mean limits.batch?",
        "--set number 2 is not KEY=VALUE",
        "--set : no such key",
    ]


# Wrong values


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('[limits]\nbatch = "many"', "limits.batch is 'many': an integer from 1 to 10000"),
        ("[limits]\nbatch = 0", "limits.batch is 0: an integer from 1 to 10000"),
        ("[limits]\nbatch = 10001", "limits.batch is 10001: an integer from 1 to 10000"),
        ("[limits]\nbatch = 1.0", "limits.batch is 1.0: an integer from 1 to 10000"),
        ("[limits]\nbatch = true", "limits.batch is True: an integer from 1 to 10000"),
        ("[limits]\nbatch = -1", "limits.batch is -1: an integer from 1 to 10000"),
        ("[limits]\nrun = 5", "limits.run is 5: an integer from 10000 to 10000"),
        ("[gateway]\nhead_ms = 0", f"gateway.head_ms is 0: an integer from 1 to {MAX_INT}"),
        ("[shard]\nflushes = 0", f"shard.flushes is 0: an integer from 1 to {MAX_INT}"),
        (f"[shard]\nflushes = {2**60}",
         f"shard.flushes is {2**60}: an integer from 1 to {MAX_INT}"),
        ("[auth]\nreload_ms = 99", "auth.reload_ms is 99: an integer from 100 to 600000"),
        ("[auth]\nrequired = 1", "auth.required is 1: true or false"),
        ("[auth]\nallowed_origins = [1]", "auth.allowed_origins is [1]: a list of strings"),
        ("[log]\nlevel = 'loud'", "log.level is 'loud': one of debug, info, warning, error"),
        ("store = 1", "store is 1: a string"),
        ("[queues.template]\nshards = 257",
         "queues.template.shards is 257: an integer from 1 to 256"),
        ("[queues.template]\noverflow = 'x'",
         "queues.template.overflow is 'x': one of reject, drop_oldest, dead_letter"),
    ],
)  # fmt: skip
def test_wrong_values_say_key_value_and_range(text: str, fault: str) -> None:
    toml(text)
    assert faults() == [f"pushlane.toml: {fault}"]


@pytest.mark.parametrize("text", ["", "ten", "1.5", "1e3", "0755", "１ 0", "--1", "9" * 5000])
def test_wrong_texts(text: str) -> None:
    (fault,) = faults(environment={"PUSHLANE_LIMITS_BATCH": text})
    assert fault.startswith("PUSHLANE_LIMITS_BATCH is ")
    assert fault.endswith(": an integer from 1 to 10000")
    assert len(fault) < 200


@pytest.mark.parametrize("text", ["", "yes", "on", "2", "None"])
def test_what_is_neither_true_nor_false(text: str) -> None:
    (fault,) = faults(settings=[f"auth.required={text}"])
    assert fault == f"--set auth.required is {text!r}: true or false"


def test_all_faults_at_once() -> None:
    toml("lissen = 1\n[limits]\nbatch = 0\n")
    found = faults(environment={"PUSHLANE_NO": "1", "PUSHLANE_LIMITS_SUBS": "x"}, settings=["a=1"])
    assert len(found) == 5


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[tls]\nkey = 'k'", "tls: certificate is missing"),
        ("[tls]\ncertificate = 'k'", "tls: key is missing"),
        (
            "[limits]\nlease_ms_min = 3600000\nlease_ms_max = 1000",
            "limits: lease_ms_min is greater",
        ),
        ("[gateway]\nping_ms = 99999999", "gateway: silence_ms is not longer than ping_ms"),
        ("listen = []", "configuration: listen is empty"),
        ("roles = []", "configuration: roles is empty: give at least one of gateway, dispatcher"),
        ("roles = ['owner']", "configuration: there is no role 'owner': take gateway or"),
        ("roles = ['gateway']", "configuration: a server on the store sqlite:./pushlane-data is"),
        ("listen = ['8420']", "configuration: '8420': an address is HOST:PORT"),
        ("[queues.template]\nlease_ms = 100", "configuration: queues.template: lease_ms is 100"),
        ("[queues.template]\nordering = 'sequence'", "configuration: queues.template: ordering"),
        (
            "[queues.template]\nbackoff_max_ms = 1",
            "configuration: queues.template: backoff_base_ms",
        ),
        ("[auth]\nallowed_origins = ['null']", "auth.allowed_origins: 'null'"),
        ("[auth]\nallowed_hosts = ['a:1']", "auth.allowed_hosts: 'a:1'"),
    ],
)
def test_what_does_not_go_together(text: str, fault: str) -> None:
    toml(text)
    (found,) = faults()
    assert found.startswith(fault)
    assert "pushlane.toml: " in found or "auth.allowed" in found


def test_a_queues_range_follows_the_limits() -> None:
    toml("[queues.template]\nmax_message_bytes = 2000000\n")
    assert "max_message_bytes is 2000000: 1 to 1048576" in faults()[0]
    toml("[queues.template]\nmax_message_bytes = 2000000\n[limits]\nmessage_bytes = 2000000\n")
    assert load(environment={}).queues.template.max_message_bytes == 2_000_000


# Files


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"a = ", "pushlane.toml is not TOML: Invalid value"),
        (b"[a]\n[a]", "pushlane.toml is not TOML"),
        (b"a = \xff", "pushlane.toml is not UTF-8"),
        (b"a = " + b"[" * 100_000, "pushlane.toml is not TOML"),
        (b"#" * (1 << 20) + b"##", "pushlane.toml has more than 1048576 bytes"),
    ],
)
def test_files_that_are_no_toml(content: bytes, fault: str) -> None:
    Path("pushlane.toml").write_bytes(content)
    assert faults()[0].startswith(fault)


def test_files_that_cannot_be_read() -> None:
    assert faults(config="gone.toml") == ["gone.toml can't be read: No such file or directory"]
    assert faults(environment={"PUSHLANE_CONFIG": "."}) == [". can't be read: Is a directory"]


# Secrets


SECRET = "a-secret-that-is-long-enough-to-sign"


def test_secrets_from_each_source() -> None:
    toml(f'[auth]\nsigning_secrets = ["{SECRET}"]')
    assert load(environment={}).auth.signing_secrets == (Secret(SECRET),)
    variables = {"PUSHLANE_AUTH_SIGNING_SECRETS": f"{SECRET}1,{SECRET}2"}
    assert load(environment=variables).auth.signing_secrets == (
        Secret(SECRET + "1"),
        Secret(SECRET + "2"),
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"environment": {"PUSHLANE_AUTH_SIGNING_SECRET": SECRET}},
        {"environment": {"PUSHLANE_AUTH_SIGNING_SECRETS": SECRET[:20]}},
        {"environment": {"PUSHLANE_AUTH_SIGNING_SECRETS": f"{SECRET},{SECRET}"}},
        {"settings": [f"auth.signing_secret={SECRET}"]},
        {"settings": [SECRET]},
    ],
)
def test_secrets_are_in_no_error(arguments: dict[str, Any]) -> None:
    assert SECRET[:20] not in "".join(faults(**arguments))


@pytest.mark.parametrize("text", [f'x = "{SECRET}"', f'signing_secrets = [["{SECRET}"]]'])
def test_nor_those_of_the_file(text: str) -> None:
    toml(f"[auth]\n{text}")
    (fault,) = faults()
    assert SECRET not in fault


def test_a_wrong_secret_is_masked() -> None:
    toml("[auth]\nsigning_secrets = 12345")
    assert faults() == [f"pushlane.toml: auth.signing_secrets is {MASK}: a list of strings"]


def test_a_mask_is_no_secret() -> None:
    toml(f"[auth]\nsigning_secrets = ['{MASK}']")
    assert "only stands for a secret" in faults()[0]


def test_reprs_hide_them() -> None:
    found = load(environment={"PUSHLANE_AUTH_SIGNING_SECRETS": SECRET})
    assert SECRET not in repr(found)
    assert SECRET not in str(found.auth)


def test_every_limit_can_be_set_to_its_ends() -> None:
    for name, info in LIMITS.items():
        for value in (info.minimum, info.maximum):
            settings = [f"limits.{name}={value}"]
            if name == "message_bytes":
                settings.append(f"limits.frame_bytes={LIMITS['frame_bytes'].maximum}")
            if name == "frame_bytes":
                settings.append(f"limits.message_bytes={LIMITS['message_bytes'].minimum}")
                settings.append("queues.template.max_message_bytes=1")
            if name == "message_bytes":
                settings.append("queues.template.max_message_bytes=1")
            if name == "lease_ms_min":
                settings.append("queues.template.lease_ms=3600000")
            if name == "lease_ms_max":
                settings.append("queues.template.lease_ms=1000")
            assert getattr(load(settings=settings, environment={}).limits, name) == value
