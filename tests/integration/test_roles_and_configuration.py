"""A change of roles reads the configuration anew, which may have been edited since the start."""

import re
from pathlib import Path

import pytest

from dittomq.errors import NotPermitted
from tests.support.real_group import MASTER, real_group, shape
from tests.support.waiting import eventually

SECOND = "a/1"


@pytest.mark.parametrize("edited", [MASTER, SECOND])
def test_places_are_not_changed_while_the_configuration_of_either_node_could_not_be_read_again(tmp_path: Path, edited: str) -> None:
    with real_group(tmp_path, shape(1)) as group:
        pids = {name: group.cluster.pid(name) for name in group.copies}
        file = group.cluster.data_dir(edited).with_suffix(".toml")
        before = file.read_text()
        file.write_text(before + "\n[half a line\n")

        with pytest.raises(NotPermitted, match=rf"{edited} could not come back.*is not TOML"):
            group.mq.admin.change_role(SECOND)

        assert group.writable(MASTER)
        file.write_text(before)
        group.mq.admin.change_role(SECOND)
        eventually(lambda: group.leads_all(SECOND), "they have changed places")
        assert {name: group.cluster.pid(name) for name in group.copies} == pids


@pytest.mark.parametrize("edited", [MASTER, SECOND])
def test_places_are_not_changed_while_the_configuration_of_either_node_is_another_nodes_or_another_stores(
    tmp_path: Path, edited: str
) -> None:
    edits = {"cluster": '"x"', "broker": '"b"', "broker_id": "7", "data_dir": f'"{tmp_path}/elsewhere"', "segment_bytes": "2097152"}
    with real_group(tmp_path, shape(1)) as group:
        file = group.cluster.data_dir(edited).with_suffix(".toml")
        before = file.read_text()
        for key, value in edits.items():
            file.write_text(re.sub(rf"(?m)^{key} = .*$", f"{key} = {value}", before))

            with pytest.raises(NotPermitted, match=rf"{edited} could not come back.*\.{key}: it is "):
                group.mq.admin.change_role(SECOND)

        assert group.writable(MASTER)
