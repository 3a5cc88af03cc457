"""What somebody hears who waits for a node whose role was changed."""

import socket
from dataclasses import replace

import pytest

from dittomq.cli.app import run
from dittomq.cli.role import Patience, somebody_listens
from dittomq.client import Client
from dittomq.client.sync_client import SyncAdmin
from dittomq.errors import OutOfReach
from dittomq.wire.admin import RoleChange
from tests.support.ha_answers import LEADER

REFUSED = "a/1 does not answer: cannot connect: Connection refused"


def test_a_node_that_is_back_at_once_is_waited_for_in_silence_and_any_other_one_is_told_of() -> None:
    patience = Patience("a/1", "h:1", 100.0)

    assert [patience.heard("it drains", now, listens=True) for now in (100.0, 102.9)] == ["", ""]
    assert patience.heard("it drains", 103.0, listens=True) == "still waiting for a/1 after 3 s: it drains"
    assert patience.heard("", 112.9, listens=True) == ""
    assert patience.heard("", 113.0, listens=True) == "still waiting for a/1 after 13 s: it drains"
    assert patience.heard("slaves: 4.1 s more", 116.0, listens=True) == "still waiting for a/1 after 16 s: slaves: 4.1 s more"


@pytest.mark.parametrize("command", ["lead", "follow"])
def test_who_interrupts_a_change_of_roles_is_told_that_it_may_go_on(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "__enter__", interrupted)

    assert run(["role", command, "a/1", "--nameserver", "localhost:1"]) == 130
    assert "interrupted; the change of roles may go on all the same" in capsys.readouterr().err


def test_where_nothing_listens_any_more_the_wait_ends_sooner_and_says_what_to_do() -> None:
    patience = Patience("a/1", "h:1", 100.0)
    patience.heard(REFUSED, 101.0, listens=False)
    patience.heard("it starts", 110.0, listens=True)
    patience.heard(REFUSED, 111.0, listens=False)
    patience.heard(REFUSED, 130.9, listens=False)

    with pytest.raises(OutOfReach, match="for 20 s nothing listens at h:1; look at its log, and start it again or let another node lead"):
        patience.heard(REFUSED, 131.0, listens=False)


def test_a_node_that_answers_and_does_not_lead_is_waited_for_a_minute() -> None:
    patience = Patience("a/1", "h:1", 100.0)
    patience.heard("it is empty", 159.9, listens=True)

    with pytest.raises(OutOfReach, match="after 60 s it is empty; dittomq ha-status says more"):
        patience.heard("", 160.0, listens=True)


def test_only_a_refused_connection_shows_that_nothing_listens() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{server.getsockname()[1]}"

        assert not somebody_listens(address), "bound, and it does not listen yet"
        server.listen()
        assert somebody_listens(address)

    assert not somebody_listens(address)
    assert somebody_listens("a/1"), "no address: nothing is known of it"


@pytest.mark.parametrize("opened", [3, 5])
def test_a_node_that_opened_a_newer_epoch_than_it_was_granted_is_said_to_lead_since_that_one(
    opened: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(SyncAdmin, "change_role", lambda *_, **__: RoleChange(3, "", comes_back=True))
    monkeypatch.setattr(SyncAdmin, "ha_status", lambda *_: replace(LEADER, epoch=opened))

    assert run(["role", "lead", "localhost:2", "--nameserver", "localhost:1"]) == 0
    assert f"leads since epoch {opened} after" in capsys.readouterr().out
