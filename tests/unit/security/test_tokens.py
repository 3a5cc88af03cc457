import random

import pytest

from dittomq.errors import ConfigError
from dittomq.security.token_files import checked_token
from dittomq.security.tokens import is_token_of, new_token, parse_token, parse_tokens

TOKEN, LINE = new_token("shop", random.Random(1))


def test_a_token_is_known_by_its_line_and_the_line_does_not_hold_it() -> None:
    parts = parse_token(TOKEN)
    assert parts is not None
    name, secret = parts

    assert is_token_of(parse_tokens(f"# ours\n\n{LINE}\n", "tokens")[name], secret)
    assert secret not in LINE


def test_another_secret_is_not_taken() -> None:
    assert not is_token_of(parse_tokens(LINE, "tokens")["shop"], "x" * 43)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (TOKEN, "tokens:1: is not a name and a hash"),
        (f"shop {TOKEN}", "tokens:1: has no hash of argon2"),
        (f"{LINE}\n{LINE}", 'tokens:2: names "shop" again'),
        (LINE.replace("m=19456", "m=9999999"), "tokens:1: asks for more work"),
    ],
)
def test_a_broken_tokens_file_is_refused_without_what_it_holds(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_tokens(text, "tokens")

    assert problem in str(refused.value)
    assert TOKEN.partition("~")[2] not in str(refused.value)


def test_a_text_that_no_header_carries_is_no_token_and_is_not_told() -> None:
    with pytest.raises(ConfigError) as refused:
        checked_token("token", "hidden\nword")

    assert "hidden" not in str(refused.value)
