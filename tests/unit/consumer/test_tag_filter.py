import pytest

from dittomq.consumer.tag_filter import parse_tags
from dittomq.errors import InvalidField


@pytest.mark.parametrize("expression", ["", "*", "  * "])
def test_no_expression_and_a_star_want_all(expression: str) -> None:
    found = parse_tags(expression)

    assert found.matches("paid")
    assert found.matches("")
    assert found.expression == "*"


def test_an_expression_wants_its_tags_exactly() -> None:
    found = parse_tags(" paid||refund ")

    assert [found.matches(tag) for tag in ("paid", "refund", "pai", "PAID", "")] == [True, True, False, False, False]
    assert found.expression == parse_tags("refund || paid").expression


def test_tags_of_one_hash_are_told_apart() -> None:
    assert not parse_tags("Aa").matches("BB")  # Java's hash of both is 2112


@pytest.mark.parametrize("expression", ["||", "a ||", "|| b", "a || || b", "a | b", "a || *", "a |||| b", "||".join("abc" * 100)])
def test_a_malformed_expression_is_refused(expression: str) -> None:
    with pytest.raises(InvalidField):
        parse_tags(expression)
