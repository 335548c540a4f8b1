"""Signed tokens: only ours, only now, only with our algorithm."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path
from typing import Any

import jwt
import pytest

from pushlane.wire.errors import BadRequest, Unauthorized
from pushlane_gateway.auth.identity import Identity
from pushlane_gateway.auth.rule import Rule, parse_rules
from pushlane_gateway.auth.secret import Secret
from pushlane_gateway.auth.signer import (
    MAX_SECRETS,
    Signer,
    _key_id,
    _signing_key,
    check_secrets,
    make_secret,
    read_or_make,
)
from pushlane_gateway.configuration.errors import ConfigurationError
from tests.gateway.auth.tools import NOW

OLD, NEW, FOREIGN = Secret("o" * 40), Secret("n" * 40), Secret("f" * 40)
WHO = Identity("web", "acme", parse_rules(["consume:news*"]), NOW + 60_000, "abc", token="one")


def signer(*secrets: Secret, **options: Any) -> Signer:
    return Signer(secrets or (NEW,), **options)


def forge(secret: Secret = NEW, header: Any = None, **changed: Any) -> str:
    """A token with our own tools, good unless something is changed."""
    claims = {
        "iss": "pushlane",
        "sub": "web",
        "iat": NOW // 1000,
        "nbf": NOW // 1000,
        "exp": NOW // 1000 + 60,
        "tenant": "acme",
        "rules": ["consume:news*"],
        "key": "abc",
        "jti": "one",
        **changed,
    }
    claims = {name: value for name, value in claims.items() if value is not None}
    header = {"kid": _key_id(secret)} if header is None else header
    return jwt.encode(claims, _signing_key(secret), algorithm="HS256", headers=header)


def raw(header: bytes, payload: bytes = b"{}", signature: bytes = b"") -> str:
    parts = (header, payload, signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def refused(token: str, by: Signer | None = None, now: int = NOW) -> str:
    with pytest.raises(Unauthorized) as refusal:
        (by or signer()).verify(token, now)
    assert refusal.value.__suppress_context__ or refusal.value.__context__ is None
    text = str(refusal.value)
    assert len(token) < 20 or token not in text
    assert not any(secret.reveal() in text for secret in (OLD, NEW, FOREIGN))
    return text


def test_what_was_signed_comes_back() -> None:
    assert signer().verify(signer().sign(WHO, NOW), NOW) == WHO
    assert signer().verify(forge(), NOW) == WHO, "the forger of these tests works"


def test_a_token_that_has_no_name_is_known_by_its_text() -> None:
    one, other = forge(jti=None), forge(jti=None, sub="app")
    names = {signer().verify(token, NOW).token for token in (one, one, other)}
    assert len(names) == 2
    assert None not in names


def test_a_token_without_a_key_comes_back() -> None:
    who = Identity("anonymous", "default", (Rule("publish", "a"),), NOW + 1000, token="one")
    assert signer().verify(signer().sign(who, NOW), NOW) == who


def test_it_ends_on_time() -> None:
    token = signer().sign(WHO, NOW)
    assert signer(leeway_ms=5000).verify(token, NOW + 59_999) == WHO
    assert "expired" in refused(token, signer(leeway_ms=5000), NOW + 60_000)
    assert "POST /v1/tokens" in refused(token, now=NOW + 90_000)


def test_it_does_not_begin_early_but_for_the_leeway() -> None:
    token = signer().sign(WHO, NOW)
    assert signer(leeway_ms=5000).verify(token, NOW - 5000) == WHO
    assert "clocks" in refused(token, signer(leeway_ms=5000), NOW - 5001)
    assert "not valid yet" in refused(token, now=NOW - 1)


def test_rotation_the_first_signs_and_all_verify() -> None:
    before, meanwhile, after = signer(OLD), signer(NEW, OLD), signer(NEW)
    old = before.sign(WHO, NOW)
    new = meanwhile.sign(WHO, NOW)
    assert meanwhile.verify(old, NOW) == meanwhile.verify(new, NOW) == after.verify(new, NOW)
    assert "not signed with a secret of this server" in refused(old, after)
    assert "not signed with a secret of this server" in refused(new, before)


def test_kid_and_signing_key_give_nothing_away() -> None:
    header = jwt.get_unverified_header(signer().sign(WHO, NOW))
    assert header == {"alg": "HS256", "typ": "JWT", "kid": _key_id(NEW)}
    assert _key_id(NEW) not in _signing_key(NEW)
    assert NEW.reveal() not in _signing_key(NEW)


def test_a_foreign_secret_under_our_kid_is_found_out() -> None:
    assert "signature" in refused(forge(FOREIGN, {"kid": _key_id(NEW)}))


def test_a_changed_claim_is_found_out() -> None:
    header, _, signature = signer().sign(WHO, NOW).split(".")
    _, payload, _ = forge(FOREIGN, rules=["admin:*"]).split(".")
    assert "signature" in refused(f"{header}.{payload}.{signature}")


def test_alg_none_is_refused_in_every_spelling() -> None:
    claims = jwt.decode(forge(), options={"verify_signature": False})
    for name in ("none", "None", "NONE", "nOnE"):
        header = json.dumps({"alg": name, "kid": _key_id(NEW)}).encode()
        for signature in (b"", b"x" * 32):
            text = refused(raw(header, json.dumps(claims).encode(), signature))
            assert "HS256" in text


@pytest.mark.parametrize(
    "algorithm", ["HS384", "HS512", "RS256", "ES256", "", 256, None, ["HS256"]]
)
def test_other_algorithms_are_refused(algorithm: Any) -> None:
    header = json.dumps({"alg": algorithm, "kid": _key_id(NEW)}).encode()
    refused(raw(header, b"{}", b"x" * 48))


def test_a_right_signature_of_another_algorithm_is_refused() -> None:
    token = jwt.encode(
        jwt.decode(forge(), options={"verify_signature": False}),
        _signing_key(NEW),
        algorithm="HS512",
        headers={"kid": _key_id(NEW)},
    )
    assert "HS256" in refused(token)


def test_another_issuer_is_refused() -> None:
    assert "issuer" in refused(forge(iss="elsewhere"))
    assert "issuer" in refused(signer().sign(WHO, NOW), signer(issuer="elsewhere"))


@pytest.mark.parametrize("claim", ["iss", "sub", "iat", "nbf", "exp", "tenant", "rules"])
def test_a_missing_claim_is_refused(claim: str) -> None:
    changed: dict[str, Any] = {claim: None}
    refused(forge(**changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"exp": "soon"},
        {"exp": NOW / 1000 + 0.5},
        {"exp": True},
        {"nbf": []},
        {"sub": ""},
        {"sub": "a\nb"},
        {"tenant": "../x"},
        {"rules": []},
        {"rules": ["shout:*"]},
        {"rules": "admin:*"},
        {"key": 7},
    ],
)
def test_claims_that_make_no_sense_are_refused(changed: dict[str, Any]) -> None:
    refused(forge(**changed))


@pytest.mark.parametrize("kid", [None, "", "other", 7, ["a"], {"a": 1}])
def test_a_kid_that_is_not_ours_is_refused(kid: Any) -> None:
    refused(raw(json.dumps({"alg": "HS256", "kid": kid}).encode(), b"{}", b"x" * 32))


@pytest.mark.parametrize(
    "token",
    [
        *["a", ".", "..", "...", "a.b", "a.b.c", "a.b.c.d", "\x00", "ä.ö.ü", "\ud800.a.b", " "],
        raw(b"[" * 6000),
        raw(b'{"a":' * 1200),
        raw(b'{"alg": ' + b"9" * 5500 + b"}"),
        raw(b"\xff\xff"),
        raw(b"[]"),
        raw(b"null"),
        raw(b'"HS256"'),
        raw(b'{"alg": "HS256", "crit": ["b64"], "b64": false}'),
    ],
)
def test_rubbish_is_refused(token: str) -> None:
    refused(token)


def test_a_signed_payload_nested_deeply_is_refused() -> None:
    deep: Any = []
    for _ in range(400):
        deep = [deep]
    refused(forge(rules=deep))


def test_a_token_too_long_for_a_header_is_not_made() -> None:
    rules = tuple(Rule("publish", f"{number:0>119}*") for number in range(64))
    with pytest.raises(BadRequest, match="fewer rules"):
        signer().sign(Identity("a", "default", rules, NOW + 1000), NOW)


def test_it_is_made_once_and_privately(tmp_path: Path) -> None:
    path = tmp_path / "data" / "signing.secret"
    made = read_or_make(path)
    assert len(made) == 1
    assert len(made[0]) == 43
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_or_make(path) == made
    assert make_secret() != make_secret()


def test_two_servers_that_start_at_once_agree(tmp_path: Path) -> None:
    found: list[tuple[Secret, ...]] = []
    threads = [
        threading.Thread(target=lambda: found.append(read_or_make(tmp_path / "s")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_several_lines_are_several_secrets(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("n" * 32 + "\n" + "o" * 32 + "\n\n")
    path.chmod(0o600)
    assert read_or_make(path) == (Secret("n" * 32), Secret("o" * 32))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o620])
def test_one_that_others_may_see_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "s"
    read_or_make(path)
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        read_or_make(path)


@pytest.mark.parametrize("content", ["", "\n", "short\n", "s" * 31, "a" * 32 + "\n" + "a" * 32])
def test_one_that_is_no_good_is_refused_and_not_shown(tmp_path: Path, content: str) -> None:
    path = tmp_path / "s"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match=str(path)) as fault:
        read_or_make(path)
    assert not content.strip() or content.strip() not in str(fault.value)
    assert path.read_text() == content


def test_one_that_cannot_be_read_says_what_else_to_do(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    with pytest.raises(ConfigurationError, match=r"auth\.signing_secrets"):
        read_or_make(tmp_path / "s")


def test_there_is_a_most_of_secrets() -> None:
    many = tuple(Secret(f"{number:0>32}") for number in range(MAX_SECRETS + 1))
    assert check_secrets(many[1:], "here") == many[1:]
    with pytest.raises(ConfigurationError, match=f"here has 17 secrets: at most {MAX_SECRETS}"):
        check_secrets(many, "here")
