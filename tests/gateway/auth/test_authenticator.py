"""The authenticator: who gets in, as whom, for how long, and what they can pass on."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from pushlane.wire.errors import BadRequest, Forbidden, Unauthorized
from pushlane.wire.limits import DEFAULTS
from pushlane_gateway.auth.authenticator import Authenticator, bearer, open_authenticator
from pushlane_gateway.auth.identity import ANONYMOUS, Identity
from pushlane_gateway.auth.key_file import remove_key
from pushlane_gateway.auth.private_file import write_private
from pushlane_gateway.auth.rule import Rule, parse_rules
from pushlane_gateway.auth.secret import Secret
from pushlane_gateway.auth.settings import AuthSettings
from pushlane_gateway.configuration.errors import ConfigurationError
from tests.gateway.auth.tools import NOW, SIGNING, Wall, make_authenticator, make_token

HOUR = 3_600_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.fixture
def wall() -> Wall:
    return Wall()


def refusal(authenticator: Authenticator, token: str | None) -> str:
    with pytest.raises(Unauthorized) as refused:
        authenticator.authenticate(token)
    assert not token or len(token) < 20 or token not in str(refused.value)
    return str(refused.value)


# Without keys


def test_without_keys_anybody_is_anonymous(path: Path) -> None:
    for authenticator in (make_authenticator(), make_authenticator(path)):
        assert not authenticator.required
        assert authenticator.authenticate(None) is ANONYMOUS
        assert authenticator.authenticate("") is ANONYMOUS
        assert authenticator.still_valid(ANONYMOUS)


def test_a_key_is_checked_also_where_none_is_asked_for(tmp_path: Path) -> None:
    _, token = make_token(tmp_path / "of another server")
    assert "leave the token out" in refusal(make_authenticator(), token)
    assert "neither" in refusal(make_authenticator(), "nonsense")


def test_keys_can_be_asked_for_before_there_are_any() -> None:
    authenticator = make_authenticator(required=True)
    assert authenticator.required
    assert "pushlane token create" in refusal(authenticator, None)


def test_an_empty_file_asks_for_keys_too(path: Path) -> None:
    key, _ = make_token(path)
    remove_key(path, key.id)
    authenticator = make_authenticator(path)
    assert authenticator.required
    assert len(authenticator) == 0
    assert authenticator, "one without keys is still one"
    refusal(authenticator, None)


# With keys


def test_a_key_gives_its_identity(path: Path) -> None:
    key, token = make_token(path, "publish:orders*", tenant="acme")
    authenticator = make_authenticator(path)
    assert authenticator.required
    identity = authenticator.authenticate(token)
    assert identity == key.identity()
    assert (identity.tenant, identity.allows("publish", "orders.eu")) == ("acme", True)


def test_no_token_wrong_secret_unknown_id_and_half_a_key_are_refused(path: Path) -> None:
    def why(token: str) -> str:
        return refusal(authenticator, token).replace(token.split("_")[1], "ID")

    _, token = make_token(path)
    authenticator = make_authenticator(path)
    _, unknown = make_token(path.with_name("other.json"))
    assert "Authorization: Bearer" in refusal(authenticator, None)
    wrong = token[:-4] + ("aaaa" if token[-4:] != "aaaa" else "bbbb")
    assert why(wrong) == why(unknown), "which of them is told"
    assert "not whole" in refusal(authenticator, token[:-1])
    assert "not whole" in refusal(authenticator, "plk_")
    refusal(authenticator, token.upper())
    refusal(authenticator, token + "\n")


def test_an_expired_key_is_refused(path: Path, wall: Wall) -> None:
    _, token = make_token(path, expires_at=NOW + 10)
    authenticator = make_authenticator(path, wall)
    wall.now = NOW + 9
    identity = authenticator.authenticate(token)
    wall.now = NOW + 10
    assert "expired" in refusal(authenticator, token)
    assert not authenticator.still_valid(identity)


def test_a_huge_token_is_not_even_looked_at(path: Path) -> None:
    make_token(path)
    assert "more than 8192" in refusal(
        make_authenticator(path), "plk_" + "a" * DEFAULTS.token_bytes
    )


def test_a_broken_file_or_secret_stops_the_start(path: Path, tmp_path: Path) -> None:
    path.write_text("{")
    with pytest.raises(ConfigurationError, match=r"keys\.json"):
        make_authenticator(path)
    with pytest.raises(ConfigurationError, match=r"auth\.signing_secrets.*32") as fault:
        make_authenticator(signing_secrets=(Secret("tooshort"),))
    assert "tooshort" not in str(fault.value)


def test_a_signing_secret_of_its_own_is_kept_in_the_folder(tmp_path: Path, wall: Wall) -> None:
    def start() -> Authenticator:
        return open_authenticator(AuthSettings(), None, tmp_path, wall=wall)

    token, _ = start().issue(ANONYMOUS, parse_rules(["publish:a"]), HOUR)
    assert start().authenticate(token).allows("publish", "a")
    assert (tmp_path / "signing.secret").exists()


def test_without_a_folder_it_lives_in_memory(wall: Wall) -> None:
    def start() -> Authenticator:
        return open_authenticator(AuthSettings(), wall=wall)

    token, _ = start().issue(ANONYMOUS, parse_rules(["publish:a"]), HOUR)
    assert "not signed with a secret of this server" in refusal(start(), token)


# Signed tokens


def test_a_signed_token_is_narrower_and_ends(path: Path, wall: Wall) -> None:
    key, token = make_token(path, "publish:orders*", "consume:orders*", tenant="acme")
    authenticator = make_authenticator(path, wall)
    wall.now = NOW + 400
    signed, expires_at = authenticator.issue(
        authenticator.authenticate(token), parse_rules(["consume:orders.eu"]), HOUR
    )
    assert expires_at == NOW + HOUR
    who = authenticator.authenticate(signed)
    assert (who.tenant, who.key, who.expires_at) == ("acme", key.id, expires_at)
    assert who.rules == (Rule("consume", "orders.eu"),)
    wall.now = expires_at
    assert "expired" in refusal(authenticator, signed)
    assert not authenticator.still_valid(who)


def test_nobody_passes_on_more_than_they_have(path: Path) -> None:
    _, token = make_token(path, "publish:orders*")
    authenticator = make_authenticator(path)
    who = authenticator.authenticate(token)
    for more in ("publish:*", "publish:order", "consume:orders", "admin:orders", "manage:orders"):
        with pytest.raises(Forbidden, match="ask for less") as refused:
            authenticator.issue(who, parse_rules(["publish:orders", more]), HOUR)
        assert more in str(refused.value)


def test_a_token_made_from_a_token_is_no_wider_and_no_longer(path: Path, wall: Wall) -> None:
    _, token = make_token(path, "publish:*")
    authenticator = make_authenticator(path, wall)
    first, ends = authenticator.issue(
        authenticator.authenticate(token), parse_rules(["publish:a*"]), 60_000
    )
    who = authenticator.authenticate(first)
    _, second_ends = authenticator.issue(who, parse_rules(["publish:ab"]), HOUR)
    assert second_ends == ends
    with pytest.raises(Forbidden):
        authenticator.issue(who, parse_rules(["publish:b"]), HOUR)


def test_a_token_may_be_for_somebody(path: Path) -> None:
    key, token = make_token(path, "publish:*")
    authenticator = make_authenticator(path)
    owner = authenticator.authenticate(token)
    rules = parse_rules(["publish:a"])

    def made(by: Identity, subject: str | None) -> Identity:
        return authenticator.authenticate(authenticator.issue(by, rules, HOUR, subject)[0])

    ann, again, bob = (made(owner, subject) for subject in ("ann", "ann", "bob"))
    assert (ann.subject, ann.key, ann.name) == ("ann", key.id, owner.name)
    assert ann.is_same(again)
    assert not ann.is_same(bob)
    assert not ann.is_same(owner)
    assert made(owner, None).is_same(owner)
    assert made(ann, None).is_same(ann)
    assert made(ann, "ann").is_same(ann)
    with pytest.raises(Forbidden, match="another subject"):
        made(ann, "bob")


@pytest.mark.parametrize("subject", ["", " ann", "a\nb", "x" * 121])
def test_a_subject_is_short_and_printable(subject: str) -> None:
    with pytest.raises(BadRequest, match="a subject has 1 to 120"):
        make_authenticator().issue(ANONYMOUS, parse_rules(["publish:a"]), HOUR, subject)


@pytest.mark.parametrize("ttl_ms", [-1, 0, 999, 12 * HOUR + 1, 10**18])
def test_its_life_has_limits(ttl_ms: int) -> None:
    with pytest.raises(BadRequest, match=f"ttl_ms is {ttl_ms}: 1000 to {12 * HOUR}"):
        make_authenticator().issue(ANONYMOUS, parse_rules(["publish:a"]), ttl_ms)


def test_its_life_when_none_is_asked_for(wall: Wall) -> None:
    rules = parse_rules(["publish:a"])
    assert make_authenticator(wall=wall).issue(ANONYMOUS, rules)[1] == NOW + 900_000
    short = make_authenticator(wall=wall, token_ttl_ms_max=5_000)
    assert short.issue(ANONYMOUS, rules)[1] == NOW + 5_000


def test_it_needs_rules() -> None:
    with pytest.raises(BadRequest, match="0 rules"):
        make_authenticator().issue(ANONYMOUS, [], HOUR)


def test_who_is_no_longer_valid_passes_nothing_on(path: Path) -> None:
    key, token = make_token(path)
    authenticator = make_authenticator(path)
    who = authenticator.authenticate(token)
    remove_key(path, key.id)
    authenticator.reload()
    with pytest.raises(Unauthorized):
        authenticator.issue(who, parse_rules(["publish:a"]), HOUR)


def test_a_token_dies_with_its_key(path: Path, wall: Wall) -> None:
    key, token = make_token(path)
    authenticator = make_authenticator(path, wall)
    signed, _ = authenticator.issue(
        authenticator.authenticate(token), parse_rules(["publish:a"]), HOUR
    )
    remove_key(path, key.id)
    assert authenticator.reload()
    assert "revoked" in refusal(authenticator, signed)


def test_a_token_dies_when_its_key_expires_or_gets_fewer_rights(path: Path, wall: Wall) -> None:
    _, token = make_token(path, "publish:a")
    authenticator = make_authenticator(path, wall)
    who = authenticator.authenticate(token)
    signed, _ = authenticator.issue(who, parse_rules(["publish:a"]), HOUR)
    good = path.read_bytes()
    write_private(path, good.replace(b"publish:a", b"publish:b"))
    authenticator.reload()
    assert "other rights" in refusal(authenticator, signed)
    assert not authenticator.still_valid(who)
    write_private(path, good.replace(b'"expires_at": null', b'"expires_at": %d' % NOW))
    authenticator.reload()
    assert "the key has expired" in refusal(authenticator, signed)
    write_private(path, good)
    authenticator.reload()
    assert authenticator.authenticate(signed).key == who.key


def test_a_token_of_an_anonymous_caller_dies_when_keys_are_asked_for(
    path: Path, wall: Wall
) -> None:
    authenticator = make_authenticator(path, wall)
    signed, _ = authenticator.issue(ANONYMOUS, parse_rules(["publish:a"]), HOUR)
    who = authenticator.authenticate(signed)
    assert not who.allows("publish", "b")
    make_token(path)
    assert authenticator.reload()
    refusal(authenticator, signed)
    assert not authenticator.still_valid(who)
    assert not authenticator.still_valid(ANONYMOUS)


# Authorization headers


def test_bearer() -> None:
    assert bearer(None) is None
    assert bearer("Bearer abc") == bearer("bearer  abc ") == bearer("BEARER abc") == "abc"
    for wrong in ("abc", "Basic dXNlcjpwYXNz", "Bearer", "Bearer ", "", "Bearerabc"):
        with pytest.raises(Unauthorized, match="Bearer TOKEN") as fault:
            bearer(wrong)
        assert "dXNl" not in str(fault.value)


# Secrets


def test_no_secret_in_reprs_and_logs(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    key, token = make_token(path)
    authenticator = make_authenticator(path)
    who = authenticator.authenticate(token)
    signed, _ = authenticator.issue(who, parse_rules(["publish:a"]), HOUR)
    refusal(authenticator, token[:-1] + "-")
    logging.getLogger("test").info("%r %r %r", authenticator, who, authenticator.settings)
    secrets = [token.rpartition("_")[2], signed, SIGNING.reveal(), key.digest.hex()]
    assert "Authenticator(required=True, keys=1)" in caplog.text
    for secret in secrets:
        assert secret not in caplog.text
        assert secret not in repr(vars(authenticator))


def test_tokens_made_from_a_token_are_of_its_family(path: Path) -> None:
    _, text = make_token(path)
    authenticator = make_authenticator(path)
    by = authenticator.authenticate(text)
    rules = parse_rules(["consume:a"])
    first, second = (
        authenticator.authenticate(authenticator.issue(by, rules)[0]) for _ in range(2)
    )
    assert by.token is None
    assert first.token != second.token
    again = authenticator.authenticate(authenticator.issue(first, rules)[0])
    assert again.token == first.token
