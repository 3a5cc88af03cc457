"""Who gets through a gate, and what becomes of that when its files change."""

import asyncio
import json
import os
import random
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from jwt.algorithms import RSAAlgorithm

from dittomq.errors import ConfigError, PermissionDenied, Unauthenticated
from dittomq.security.access import AccessRole
from dittomq.security.authentication import Authentication, Caller
from dittomq.security.gate import AccessFiles, Gate
from dittomq.security.tokens import new_token
from tests.support.inline_lane import InlineLane
from tests.support.manual_clock import HandClock
from tests.support.waiting import eventually

TOKEN, LINE = new_token("shop", random.Random(1))
OTHER, OTHER_LINE = new_token("shop", random.Random(2))
RULES = '[[allow]]\nwho = ["token:shop", "jwt:shop", "san:shop.example"]\nroles = ["produce"]\ntopics = ["orders"]\n'
KEY = generate_private_key(65537, 2048)


class _Counting(InlineLane):
    """Counts what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    async def call(self, work: Callable[[], Any]) -> Any:
        self.calls += 1
        return await super().call(work)


class _Told:
    def __init__(self) -> None:
        self.renewed = 0
        self.problems: list[str] = []

    def on_renewal(self) -> None:
        self.renewed += 1

    def on_problem(self, problem: ConfigError) -> None:
        self.problems.append(str(problem))


class Guarded:
    """A gate with files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = HandClock()
        self.lane = _Counting()
        self.told = _Told()
        self.write("access.toml", RULES)
        self.write("tokens", LINE)
        document = {"keys": [json.loads(RSAAlgorithm.to_jwk(KEY.public_key())) | {"kid": "k1", "use": "sig"}]}
        self.write("jwks.json", json.dumps(document))
        rules, tokens, keys = (str(folder / name) for name in ("access.toml", "tokens", "jwks.json"))
        files = AccessFiles(rules, tokens, keys, "https://issuer.example", "dittomq")
        who = Authentication(self.clock, self.lane, random.Random(3))
        self.gate = Gate(files, who, self.clock, on_renewal=self.told.on_renewal, on_problem=self.told.on_problem)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def caller(self, token: str = "", certificate: Iterable[bytes] = ()) -> Caller:
        headers = [("authorization", f"Bearer {token}")] if token else []
        return asyncio.run(self.gate.caller(headers, {"x509_subject_alternative_name": list(certificate)}))

    def web_token(self, *, key: RSAPrivateKey = KEY, kid: str = "k1", **said: Any) -> str:
        now = self.clock.wall_ms() // 1000
        said = {"sub": "shop", "iss": "https://issuer.example", "aud": "dittomq", "exp": now + 60} | said
        return jwt.encode(said, key, algorithm="RS256", headers={"kid": kid})


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path)


def test_a_caller_without_certificate_and_token_is_refused(guarded: Guarded) -> None:
    with pytest.raises(Unauthenticated):
        guarded.caller()


def test_a_certificate_says_who_calls(guarded: Guarded) -> None:
    assert guarded.caller(certificate=[b"shop.example", b"10.0.0.1"]).names == ("san:shop.example", "san:10.0.0.1")


def test_a_token_is_verified_once_and_not_at_each_call(guarded: Guarded) -> None:
    for _ in range(5):
        assert guarded.caller(TOKEN).names == ("token:shop",)

    assert guarded.lane.calls == 1


def test_a_wrong_token_is_refused_at_once_the_second_time_and_never_told(guarded: Guarded) -> None:
    for _ in range(3):
        with pytest.raises(Unauthenticated) as refused:
            guarded.caller(OTHER)
        assert OTHER.partition("~")[2] not in str(refused.value)

    assert guarded.lane.calls == 1


def test_a_wrong_token_is_refused_whatever_the_certificate(guarded: Guarded) -> None:
    with pytest.raises(Unauthenticated):
        guarded.caller(OTHER, certificate=[b"shop.example"])


def test_a_token_that_leaves_the_file_ends_what_was_let_in_by_it(guarded: Guarded) -> None:
    caller = guarded.caller(TOKEN)

    guarded.write("tokens", OTHER_LINE)
    guarded.gate.look()

    with pytest.raises(Unauthenticated):
        guarded.gate.check_still(caller)
    with pytest.raises(Unauthenticated):
        guarded.caller(TOKEN)
    assert guarded.caller(OTHER).names == ("token:shop",)


def test_rules_that_change_hold_from_then_on(guarded: Guarded) -> None:
    caller = guarded.caller(TOKEN)
    guarded.gate.state.allowance(caller, AccessRole.PRODUCE)

    guarded.write("access.toml", RULES.replace("produce", "consume"))
    guarded.gate.look()

    with pytest.raises(PermissionDenied, match="token:shop has no role produce"):
        guarded.gate.state.allowance(caller, AccessRole.PRODUCE)
    assert guarded.told.renewed == 1


def test_broken_rules_are_told_once_and_the_old_ones_stay(guarded: Guarded) -> None:
    guarded.write("access.toml", "[[allow")
    guarded.gate.look()
    guarded.gate.look()

    guarded.gate.state.allowance(guarded.caller(TOKEN), AccessRole.PRODUCE)
    assert len(guarded.told.problems) == 1
    guarded.write("access.toml", RULES)
    guarded.gate.look()
    assert guarded.told.renewed == 0
    guarded.write("access.toml", "[[allow")
    guarded.gate.look()
    assert len(guarded.told.problems) == 2, "it was right meanwhile"


NESTED = "[" * 100_000
HOSTILE = {
    "nested rules": ("access.toml", f"allow = {NESTED}"),
    "a number of 10,000 digits in the rules": ("access.toml", f"allow = {'9' * 10_000}"),
    "nested keys": ("jwks.json", f'{{"keys": {NESTED}'),
    "keys of a strange shape": ("jwks.json", '{"keys": [{"kty": "RSA", "n": [], "e": {}, "alg": "RS256"}]}'),
    "an array of numbers as keys": ("jwks.json", "[7]"),
    "a hash of no shape": ("tokens", "shop $argon2id$v=$m=x,t=,p=$$"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_whatever_a_file_holds_is_told_once_and_the_old_content_stays(guarded: Guarded, what: str) -> None:
    guarded.write(*HOSTILE[what])
    guarded.gate.look()
    guarded.gate.look()

    guarded.gate.state.allowance(guarded.caller(TOKEN), AccessRole.PRODUCE)
    assert len(guarded.told.problems) == 1


def test_files_that_cannot_be_read_to_their_end_keep_no_process_from_its_own(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dittomq.security.followed_files.LOOK_EVERY_S", 0.01)
    rules = guarded.folder / "access.toml"
    rules.unlink()
    os.mkfifo(rules)
    guarded.gate.follow()
    writing = eventually(lambda: writer_of(rules), "the gate reads it")
    assert writing is not None
    guarded.gate.close()

    os.write(writing, b"[[allow")
    os.close(writing)
    eventually(lambda: all(thread.name != "access" for thread in threading.enumerate()), "the look is over")
    assert guarded.told.problems == [], "nothing is called after the end"


def writer_of(pipe: Path) -> int | None:
    """A descriptor that writes into it, once somebody reads."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


def test_a_gate_does_not_begin_with_rules_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"access\.file"):
        Gate(
            AccessFiles(str(tmp_path / "none")),
            Authentication(HandClock(), InlineLane(), random.Random(1)),
            HandClock(),
            on_renewal=_Told().on_renewal,
            on_problem=print,
        )


def test_a_web_token_names_its_subject_until_it_expires(guarded: Guarded) -> None:
    token = guarded.web_token()
    assert guarded.caller(token).names == ("jwt:shop",)

    guarded.clock.now_s += 91

    with pytest.raises(Unauthenticated, match="expired"):
        guarded.caller(token)


@pytest.mark.parametrize(
    "said",
    [{"iss": "https://other.example"}, {"aud": "other"}, {"exp": 1}, {"nbf": 4_000_000_000}, {"sub": 7}, {"exp": None}],
    ids=lambda said: next(iter(said)),
)
def test_a_web_token_for_others_or_of_another_time_is_refused(guarded: Guarded, said: dict[str, Any]) -> None:
    with pytest.raises(Unauthenticated):
        guarded.caller(guarded.web_token(**said))


def test_a_web_token_of_another_key_or_without_a_signature_is_refused(guarded: Guarded) -> None:
    unsigned = jwt.encode({"sub": "shop"}, "", algorithm="none", headers={"kid": "k1"})
    shared = jwt.encode({"sub": "shop", "iss": "https://issuer.example", "aud": "dittomq", "exp": 9e9}, "k" * 32, headers={"kid": "k1"})
    forged = guarded.web_token(key=generate_private_key(65537, 2048))

    for token in (unsigned, shared, forged, guarded.web_token(kid="k2")):
        with pytest.raises(Unauthenticated):
            guarded.caller(token)
