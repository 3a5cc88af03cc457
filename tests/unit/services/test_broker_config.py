"""What a broker refuses to start with: settings that each are right, and together promise what nobody keeps."""

import pytest

from dittomq.broker.role import BrokerService
from dittomq.errors import ConfigError
from dittomq.settings import load
from dittomq.settings.renamed import RENAMED
from dittomq.settings.schema import tables_of
from services.master.config import MasterConfig
from services.role_supervisor import StartConfig, first_service
from services.slave.config import SlaveConfig


def refusal(*settings: str) -> str:
    """Why they are refused, by masters and slaves alike; empty when they are not."""
    sentences = set()
    for config in (MasterConfig, SlaveConfig):
        try:
            load(config, None, {}, ["replication.master_address=a-0:10912", 'node.nameservers=["ns:9876"]', *settings])
            sentences.add("")
        except ConfigError as refused:
            sentences.add(str(refused))
    [sentence] = sentences
    return sentence


def test_an_asynchronous_master_that_asks_for_copies_is_refused() -> None:
    asked = ("replication.replicas_expected=2", "replication.in_sync_replicas=3")

    assert refusal(*asked, "replication.mode=ASYNC_MASTER") == (
        "--set: replication.in_sync_replicas: 3 copies are asked for, and an ASYNC_MASTER asks for none but its own; "
        "set mode to SYNC_MASTER, or this to 1"
    )
    assert refusal(*asked, "replication.mode=SYNC_MASTER") == ""


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["replicas_expected=1", "in_sync_replicas=3"], "3 copies are asked for and 2 can exist; raise replicas_expected or lower it"),
        (["replicas_expected=2", "min_in_sync_replicas=3"], "3 is more than the 2 copies asked for; lower it"),
    ],
)
def test_more_copies_than_there_can_be_are_refused(settings: list[str], sentence: str) -> None:
    assert refusal("replication.mode=SYNC_MASTER", *(f"replication.{setting}" for setting in settings)).endswith(f": {sentence}")


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("default=10.0.0.1", '"10.0.0.1" is not "host:port"'),
        ("external=a b:10911", '"a b:10911" is not "host:port"'),
        ("Public=mq.example.org:10911", '"Public" is not 1 to 63 lower-case letters, digits, dashes or underscores'),
    ],
)
@pytest.mark.parametrize("table", ["advertise", "advertise_replication"])
def test_an_address_that_no_nameserver_takes_is_refused(table: str, setting: str, problem: str) -> None:
    assert refusal(f"{table}.{setting}") == f"--set: {table}.{setting.partition('=')[0]}: {problem}"


@pytest.mark.parametrize("setting", ["listen.clients", "listen.replication", "listen.ops"])
@pytest.mark.parametrize("address", ["5", "10911", "nowhere", "a b:1", ":10911", "127.0.0.1:65536", "127.0.0.1:99999"])
def test_an_address_on_which_nobody_can_listen_is_refused(setting: str, address: str) -> None:
    assert refusal(f"{setting}={address}") == f'--set: {setting}: "{address}" is not "host:port"'


@pytest.mark.parametrize("setting", ["node.nameservers", "replication.master_address"])
@pytest.mark.parametrize("address", ["x", "a:70000"])
def test_an_address_that_nobody_can_dial_is_refused(setting: str, address: str) -> None:
    assert refusal(f"{setting}={address}").endswith(f': {setting}: "{address}" is not "host:port"')
    assert refusal(f"{setting}=127.0.0.1:9876") == ""


def test_more_networks_than_a_nameserver_takes_are_refused() -> None:
    networks = [f"advertise.n{number}=a-0:10911" for number in range(16)]

    assert refusal(*networks[:15]) == ""
    assert refusal(*networks) == 'advertise: has 17 networks, with "default"; a nameserver takes 16'


@pytest.mark.parametrize("address", ["a-0:10911", "10.0.0.1:10911", "[::1]:10911", "a-0.dittomq-a.svc.cluster.local:10911"])
def test_an_address_that_nameservers_take_is_taken(address: str) -> None:
    assert refusal(f"advertise.default={address}", f"advertise_replication.vpc_2={address}") == ""


def test_a_reserve_that_leaves_no_room_for_what_a_node_notes_is_refused() -> None:
    assert refusal("store.min_free_bytes=0") == "--set: store.min_free_bytes: expected int >= 1048576, got 0"
    assert refusal("store.min_free_bytes=1048576") == ""


@pytest.mark.parametrize("old", RENAMED)
def test_a_renamed_key_is_refused_with_its_new_name(old: str) -> None:
    table, _, name = old.partition(".")
    variable = f"DITTOMQ_{table}__{name}".upper()

    assert refusal(f"{old}=1") == f'--set {old}=1: "{old}" is called "{RENAMED[old]}" since 0.2.0; write that'
    with pytest.raises(ConfigError, match=f"^{variable}: is called DITTOMQ_.* since 0.2.0; set that$"):
        load(MasterConfig, None, {variable: "1"}, [])


@pytest.mark.parametrize("new", RENAMED.values())
def test_the_new_name_of_a_renamed_key_is_a_key(new: str) -> None:
    table, _, name = new.partition(".")

    assert tables_of(MasterConfig)[table].key(name) is not None


@pytest.mark.parametrize(
    ("settings", "begins_as"),
    [
        ([], BrokerService.MASTER),
        (["node.broker_id=1"], BrokerService.SLAVE),
        (["replication.replicas_expected=1"], BrokerService.SLAVE),
        (["replication.replicas_expected=1", "node.broker_id=1"], BrokerService.SLAVE),
    ],
)
def test_a_node_that_is_told_no_role_begins_as_its_settings_say(settings: list[str], begins_as: BrokerService) -> None:
    loaded = load(StartConfig, None, {}, ['node.nameservers=["ns:9876"]', *settings])

    assert first_service(loaded.value) is begins_as


def test_a_node_that_begins_as_a_slave_is_held_to_the_rules_of_slaves() -> None:
    with pytest.raises(ConfigError, match="a slave without a group record finds its master by one"):
        load(StartConfig, None, {}, ["node.broker_id=1"])
