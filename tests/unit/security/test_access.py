import pytest

from dittomq.errors import ConfigError
from dittomq.security.access import AccessRole, AccessRules, parse_access

RULES = """
[[allow]]
who = ["token:shop", "san:shop.*"]
roles = ["produce"]
topics = ["orders", "returns-*"]

[[allow]]
who = ["jwt:billing"]
roles = ["consume"]
topics = ["*"]
groups = ["billing*"]

[[allow]]
who = ["san:node.example"]
roles = ["replicate"]
"""


def rules(text: str = RULES) -> AccessRules:
    return parse_access(text, "access.toml")


def test_what_no_rule_allows_is_refused() -> None:
    assert rules().allowance(["token:shop"], AccessRole.CONSUME) is None
    assert rules().allowance(["token:shopper"], AccessRole.PRODUCE) is None
    assert rules("").allowance(["token:shop"], AccessRole.ADMIN) is None


def test_a_rule_covers_its_names_and_beginnings_and_no_others() -> None:
    allowance = rules().allowance(["token:shop"], AccessRole.PRODUCE)

    assert allowance is not None
    assert allowance.missing({"orders"}, ()) == ""
    assert allowance.missing({"returns-eu"}, ()) == ""
    assert allowance.missing({"orders-eu"}, ()) == 'topic "orders-eu"'
    assert allowance.missing({"returns"}, ()) == 'topic "returns"'


def test_a_group_must_be_allowed_as_well_as_the_topic() -> None:
    allowance = rules().allowance(["jwt:billing"], AccessRole.CONSUME)

    assert allowance is not None
    assert allowance.missing({"anything"}, {"billing-eu"}) == ""
    assert allowance.missing({"anything"}, {"audit"}) == 'group "audit"'


def test_any_name_of_a_certificate_gives_what_its_rule_allows() -> None:
    assert rules().allowance(["cn:x", "san:shop.eu"], AccessRole.PRODUCE) is not None


def test_whoever_has_shown_who_he_is_is_anybody_and_nobody_else() -> None:
    assert rules().allowance(["token:unknown"], AccessRole.ANYBODY) is not None
    assert rules().allowance([], AccessRole.ANYBODY) is None


def test_a_replica_needs_no_topics() -> None:
    allowance = rules().allowance(["san:node.example"], AccessRole.REPLICATE)

    assert allowance is not None
    assert allowance.is_unlimited


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("allow = 3", "other things than tables"),
        ("[[allow]]\nwho = ['token:a']\nroles = ['produce']", "topics is missing"),
        ("[[allow]]\nwho = ['token:a']\nroles = ['write']\ntopics = ['*']", '"write" is none of'),
        ("[[allow]]\nwho = ['a']\nroles = ['audit']", '"a" is neither'),
        ("[[allow]]\nwho = ['token:']\nroles = ['audit']", '"token:" is neither'),
        ("[[allow]]\nroles = ['audit']", "who is missing"),
        ("[[allow]]\nwho = ['token:a']\nroles = ['audit']\ntopics = ['x']", "leave them out"),
        ("[[allow]]\nwho = ['token:a']\nroles = ['consume']\ntopics = ['a*b']", "not at its end"),
        ("[[allow]]\nwho = ['token:a']\nroles = ['audit']\nroles2 = []", "no key of a rule"),
        ("[[allow", "is no TOML"),
    ],
)
def test_a_rule_that_says_what_is_not_meant_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=r"access.toml") as refused:
        rules(text)

    assert problem in str(refused.value)
