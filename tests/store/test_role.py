"""`dittomq/role`: what the last role change decided is there after any kill, and is never guessed."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from dittomq.broker.home import Home, settle
from dittomq.broker.role import BrokerService, ComeBack, Grant, load_grant, own_grant, save_grant
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.state import identity
from dittomq.errors import ConfigError, UnreadableStore
from dittomq.offsets import Epoch, PhysicalOffset

PROMOTED = Grant(BrokerService.MASTER, 0, Epoch(7), "a/0", PhysicalOffset(0))
DEMOTED = Grant(BrokerService.SLAVE, 1, Epoch(7), "a/1", PhysicalOffset(0))


@pytest.fixture
def storage(tmp_path: Path) -> OsStorage:
    storage = OsStorage(tmp_path)
    storage.make_folder("dittomq")
    identity.create(storage, random.Random(1))
    return storage


@pytest.mark.parametrize(
    "grant", [PROMOTED, DEMOTED, replace(PROMOTED, accepted_loss="a/2", witnessed=Epoch(6), is_noted=True, known=((5, 0), (3, 2)))]
)
def test_a_grant_is_read_as_it_was_written(storage: OsStorage, grant: Grant) -> None:
    save_grant(storage, grant)

    assert load_grant(storage) == grant


def test_a_node_without_a_role_change_is_what_its_configuration_says(storage: OsStorage) -> None:
    assert own_grant(storage, BrokerService.MASTER, 0) is None
    assert own_grant(storage, BrokerService.SLAVE, 1) is None


@pytest.mark.parametrize(("service", "configured_id"), [(BrokerService.MASTER, 1), (BrokerService.SLAVE, 0)])
def test_a_node_without_a_role_change_is_not_started_as_what_it_is_not(
    storage: OsStorage, service: BrokerService, configured_id: int
) -> None:
    with pytest.raises(ConfigError, match=r"node\.broker_id"):
        own_grant(storage, service, configured_id)


def test_an_old_master_that_is_started_as_a_slave_is_told_how_it_becomes_one_and_not_to_change_its_name(storage: OsStorage) -> None:
    with pytest.raises(ConfigError, match="start an old master as one, with `dittomq serve master`: it becomes a slave by itself"):
        own_grant(storage, BrokerService.SLAVE, 0)


@pytest.mark.parametrize(("grant", "started"), [(PROMOTED, BrokerService.SLAVE), (DEMOTED, BrokerService.MASTER)])
def test_a_role_change_wins_over_what_the_node_is_started_as(storage: OsStorage, grant: Grant, started: BrokerService) -> None:
    save_grant(storage, grant)

    with pytest.raises(ComeBack) as back:
        own_grant(storage, started, 0)

    assert back.value.service is grant.service
    assert own_grant(storage, grant.service, 0) == grant


@pytest.mark.parametrize("grant", [PROMOTED, DEMOTED])
@pytest.mark.parametrize("service", BrokerService)
def test_a_disk_whose_role_was_changed_is_not_started_under_another_id_whatever_as(
    storage: OsStorage, grant: Grant, service: BrokerService
) -> None:
    settle(storage, Home("prod", "a"), 1)
    save_grant(storage, grant)

    with pytest.raises(ConfigError, match=r"node\.broker_id: is 2, and this disk had 1 when its role was changed; set it to 1"):
        own_grant(storage, service, 2)
    assert own_grant(storage, grant.service, 1) == grant


def test_a_disk_whose_role_was_changed_before_ids_were_noted_is_the_node_that_opens_it(storage: OsStorage) -> None:
    save_grant(storage, PROMOTED)
    assert own_grant(storage, BrokerService.MASTER, 1) == PROMOTED

    settle(storage, Home("prod", "a"), 1)

    with pytest.raises(ConfigError):
        own_grant(storage, BrokerService.MASTER, 0)


def test_a_disk_whose_role_was_never_changed_may_go_to_another_node_of_its_group(storage: OsStorage) -> None:
    settle(storage, Home("prod", "a"), 1)

    assert own_grant(storage, BrokerService.SLAVE, 2) is None
    settle(storage, Home("prod", "a"), 2)

    save_grant(storage, PROMOTED)
    assert own_grant(storage, BrokerService.MASTER, 2) == PROMOTED


def test_a_role_that_cannot_be_read_starts_nothing_and_says_what_to_do(storage: OsStorage, tmp_path: Path) -> None:
    save_grant(storage, DEMOTED)
    (tmp_path / "dittomq" / "role").write_bytes((tmp_path / "dittomq" / "role").read_bytes()[:-1])

    with pytest.raises(UnreadableStore, match="make sure that no other node leads its group"):
        own_grant(storage, BrokerService.MASTER, 0)
