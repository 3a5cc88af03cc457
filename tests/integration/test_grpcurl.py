"""What people type by hand: grpcurl against real processes; `buf curl` where grpcurl cannot be built, and the output says which."""

import json
import re
import subprocess
import warnings
from typing import Any

import pytest

from tests.support.grpcurl import Grpcurl, grpcurl_command
from tests.support.real_group import MASTER, TOPIC, RealGroup
from tests.support.waiting import eventually

NAMING = "ditto.naming.v1.NameServerService"
MESSAGING = "ditto.messaging.v1.MessagingService"
METADATA = "ditto.metadata.v1.MetadataService"
TOPICS = "ditto.admin.v1.TopicService"
BROKER = "ditto.admin.v1.BrokerService"
AUDIT = "ditto.audit.v1.AuditService"
NOT_FOUND = 5
FAILED_PRECONDITION = 9

Json = dict[str, Any]


@pytest.fixture(scope="module")
def curl() -> Grpcurl:
    command = grpcurl_command()
    if command.kind == "buf":
        warnings.warn(command.why, stacklevel=1)  # shown at the end of the run
    return command


def answers(ended: "subprocess.CompletedProcess[str]") -> list[Json]:
    """All answers of a call that went well, keys in snake_case: either tool's spelling."""
    assert ended.returncode == 0, ended.stderr
    decoder, text, found = json.JSONDecoder(), ended.stdout.strip(), []
    while text:
        answer, end = decoder.raw_decode(text)
        found.append(snake(answer))
        text = text[end:].strip()
    return found


def answer(ended: "subprocess.CompletedProcess[str]") -> Json:
    [only] = answers(ended)
    return only


def snake(value: Any) -> Any:
    match value:
        case dict():
            return {re.sub("(?<=[a-z0-9])([A-Z])", r"_\1", key).lower(): snake(inner) for key, inner in value.items()}
        case list():
            return [snake(inner) for inner in value]
        case _:
            return value


def refused(curl: Grpcurl, ended: "subprocess.CompletedProcess[str]", code: int) -> str:
    """What a refused call printed; it must have ended with the status code as documented, details decoded."""
    if curl.kind == "grpcurl":
        assert ended.returncode == 64 + code
    else:
        assert ended.returncode != 0
    return ended.stdout + ended.stderr


def test_text_published_by_hand_is_pulled_as_text(curl: Grpcurl, group: RealGroup) -> None:
    request = '{"message":{"topic":"orders","text":"bezahlt ✓","keys":["o-17"]},"ack":"ACK_LEVEL_REPLICA_FLUSHED","timeout":"60s"}'

    receipt = answer(curl.call(group.address(MASTER), f"{MESSAGING}/Publish", request))["receipt"]
    pull = json.dumps({"topic": TOPIC, "queue": receipt["queue"], "offset": receipt["queue_offset"], "wait": "60s", "prefer_text": True})
    pulled = answer(curl.call(group.address(MASTER), f"{MESSAGING}/Pull", pull))

    assert receipt["status"] == "PUT_STATUS_OK"
    assert receipt["copies"][0] == {"node": "a/0", "state": "COPY_STATE_FLUSHED"}
    assert len(receipt["copies"]) >= 2
    assert (receipt["epoch"], receipt["store_time"][-1]) == ("1", "Z")
    assert pulled["messages"][0]["text"] == "bezahlt ✓"
    assert pulled["messages"][0]["keys"] == ["o-17"]


def test_a_zero_is_printed(curl: Grpcurl, group: RealGroup) -> None:
    request = '{"message":{"topic":"by-zero","text":"first","queue":0}}'
    answer(curl.call(group.address(MASTER), f"{TOPICS}/CreateTopic", '{"topic":{"name":"by-zero"}}'))

    receipt = answer(curl.call(group.address(MASTER), f"{MESSAGING}/Publish", request))["receipt"]

    assert (receipt["queue"], receipt["queue_offset"]) == (0, "0")


def test_lines_of_a_file_are_published_through_one_stream(curl: Grpcurl, group: RealGroup) -> None:
    frames = [{"batch_id": at, "timeout": "60s", "messages": [{"topic": "orders", "text": f"line {at}"}]} for at in range(1, 4)]
    lines = "".join(json.dumps(frame) + "\n" for frame in frames)

    stored = answers(curl.stream(group.address(MASTER), f"{MESSAGING}/PublishStream", lines))

    assert sorted(int(frame["batch_id"]) for frame in stored) == [1, 2, 3]
    assert {frame["stored"]["status"] for frame in stored} == {"PUT_STATUS_OK"}
    assert all(len(frame["stored"]["runs"]) == 1 for frame in stored)


def test_a_node_says_what_it_is_and_where_its_settings_come_from(curl: Grpcurl, group: RealGroup) -> None:
    broker = answer(curl.call(group.address("a/1"), f"{BROKER}/GetBroker"))

    settings = {setting["key"]: setting for setting in broker["settings"]}
    assert (broker["node"], broker["role"]) == ("a/1", "SLAVE")
    assert settings["reading.master_timeout_ms"]["value"] == "500"
    assert "a-1.toml:" in settings["reading.master_timeout_ms"]["origin"]


@pytest.mark.parametrize("service", ["", "startup", "readiness", "liveness", MESSAGING])
@pytest.mark.parametrize("name", ["nameserver", "a/0", "a/1"])
def test_health_is_asked_for_by_hand_on_every_data_port(curl: Grpcurl, group: RealGroup, name: str, service: str) -> None:
    if (name, service) == ("nameserver", MESSAGING):
        service = NAMING

    def serving() -> bool:
        health = answer(curl.call(group.address(name), "grpc.health.v1.Health/Check", json.dumps({"service": service})))
        return bool(health["status"] == "SERVING")

    eventually(serving, f"{service} of {name} is serving")


def test_reflection_lists_the_services_of_every_data_port(curl: Grpcurl, group: RealGroup) -> None:
    nameserver = curl.call(group.cluster.nameserver).stdout.split()
    master, slave = (curl.call(group.address(name)).stdout.split() for name in ("a/0", "a/1"))
    replication = curl.call(f"127.0.0.1:{group.cluster.node(MASTER).ports.replication}").stdout.split()

    assert {NAMING, "grpc.health.v1.Health"} <= set(nameserver)
    assert {MESSAGING, METADATA, TOPICS, BROKER, AUDIT, "grpc.health.v1.Health"} <= set(master)
    assert set(slave) == set(master)
    assert "ditto.replication.v1.ReplicationService" in replication


def test_an_unknown_topic_is_refused_with_its_reason(curl: Grpcurl, group: RealGroup) -> None:
    ended = curl.call(group.address(MASTER), f"{MESSAGING}/Publish", '{"message":{"topic":"order","text":"x"}}')

    said = refused(curl, ended, NOT_FOUND)
    assert 'topic "order" does not exist in a/0; did you mean "orders"? Create it: dittomq topic create order' in said.replace('\\"', '"')
    assert curl.kind == "buf" or '"reason": "TOPIC_NOT_FOUND"' in said


def test_a_publish_to_a_slave_is_refused_and_names_the_master(curl: Grpcurl, group: RealGroup) -> None:
    ended = curl.call(group.address("a/1"), f"{MESSAGING}/Publish", '{"message":{"topic":"orders","text":"x"}}')

    said = refused(curl, ended, FAILED_PRECONDITION)
    assert f"a/1 is a slave and takes no writes; send it to the master at {group.address(MASTER)}" in said
    assert curl.kind == "buf" or '"reason": "NOT_MASTER"' in said
    assert curl.kind == "buf" or "type.googleapis.com/ditto.error.v1.NotMaster" in said
