"""What members of a group handled is judged: nothing left out, and nothing twice or out of order without a reason."""

import pytest

from tests.support.handled_messages import GroupTally, Handled, judge


def handled(at: float, offset: int, body: str, *, life: str = "1", queue: int = 0) -> Handled:
    return Handled(at, life, queue, offset, body)


def test_all_handled_once_in_order_passes() -> None:
    assert judge({"a", "b"}, [handled(1, 0, "a"), handled(2, 1, "b"), handled(3, 0, "c", queue=1)], []) == GroupTally(2, 3, 0, 0)


def test_message_that_no_member_handled_is_found() -> None:
    with pytest.raises(AssertionError, match="1 acknowledged messages were not handled, b"):
        judge({"a", "b"}, [handled(1, 0, "a")], [2.0])


@pytest.mark.parametrize(("kill", "is_found"), [(11.0, False), (3.0, True), (25.0, True)])
def test_message_handled_twice_needs_a_kill_before(kill: float, is_found: bool) -> None:
    twice = [handled(10, 0, "a"), handled(20, 0, "a", life="2")]

    if is_found:
        with pytest.raises(AssertionError, match="message a was handled twice without a kill"):
            judge({"a"}, twice, [kill])
    else:
        assert judge({"a"}, twice, [kill]) == GroupTally(1, 2, 1, 1)


def test_queue_that_goes_back_without_a_kill_is_found() -> None:
    with pytest.raises(AssertionError, match="queue 0 went back without a kill"):
        judge({"a", "b"}, [handled(10, 1, "b"), handled(20, 0, "a")], [])
