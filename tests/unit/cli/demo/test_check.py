"""Each test changes one of the accounts of a sound world, and the check must say so."""

from typing import Any

import msgspec
import pytest

from extender.cli.demo.check import Outcome, Running, check, gang
from extender.wire.answers import Group, Inspection
from protos.contract import names
from protos.contract.objects import Pod
from tests.unit.cli import books as told
from tests.unit.cli.demo.made import as_record

TRAIN = {"uuid": "GPU-a0", "index": 0, "mem": 10, "slices": 25}
BIG = {"uuid": "GPU-a1", "index": 1, "mem": 79, "slices": 100, "whole": True}


class World:
    """A pod that shares a GPU and one that has a whole one, as pods, environments and books."""

    def __init__(self) -> None:
        self.pods = {
            "train": self._pod("train", {names.GPU_MEM: "10", names.GPU_SLICE: "25"}, TRAIN),
            "big": self._pod("big", {names.WHOLE_GPU: "1"}, BIG),
        }
        self.environments = {
            "train": {names.VISIBLE_DEVICES: "GPU-a0", names.ENV_MEM_MIB: "10240", names.ENV_SLICES: "25"},
            "big": {names.VISIBLE_DEVICES: "GPU-a1", names.ENV_MEM_MIB: "81559", names.ENV_SLICES: "100"},
        }
        self.gpus = [
            told.a_gpu(0, "GPU-a0", memUsed=10, slicesUsed=25, pods=[told.a_holder("train", 10, 25)]),
            told.a_gpu(1, "GPU-a1", memUsed=79, slicesUsed=100, whole=True, pods=[told.a_holder("big", 79, 100, True)]),
        ]
        self.booked = {"train": TRAIN, "big": BIG}

    @staticmethod
    def _pod(name: str, limits: dict[str, str], share: dict[str, Any]) -> dict[str, Any]:
        noted = msgspec.json.encode(told.an_allocation("main", share)).decode()
        return {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"u-{name}",
                "annotations": {names.ALLOCATION: noted},
            },
            "spec": {"nodeName": "node-a", "containers": [{"name": "main", "resources": {"limits": limits}}]},
        }

    def note(self, name: str, text: str) -> None:
        self.pods[name]["metadata"]["annotations"] = {names.ALLOCATION: text}

    def checked(self) -> Outcome:
        running = [Running(as_record(pod), {"main": self.environments[name]}) for name, pod in self.pods.items()]
        pods = [
            {
                "namespace": "default",
                "name": name,
                "uid": f"u-{name}",
                "state": "bound",
                "node": "node-a",
                "allocation": told.an_allocation("main", share),
            }
            for name, share in self.booked.items()
        ]
        return check(running, msgspec.convert({"nodes": [told.a_node("node-a", *self.gpus)], "pods": pods}, Inspection))

    def fault(self) -> str:
        """All that is wrong, in one text; something must be."""
        faults = self.checked().faults
        assert faults
        return "\n".join(faults)


@pytest.fixture
def world() -> World:
    return World()


def test_a_sound_world_has_no_faults(world: World) -> None:
    assert world.checked() == Outcome(2, ())


def test_another_gpu_in_the_environment_is_a_fault(world: World) -> None:
    world.environments["train"][names.VISIBLE_DEVICES] = "GPU-a1"
    assert "train: main sees 'GPU-a1', its annotation names ['GPU-a0']" in world.fault()


def test_no_environment_at_all_is_a_fault(world: World) -> None:
    world.environments["train"] = {}
    assert "train: main sees ''" in world.fault()


@pytest.mark.parametrize(("variable", "value"), [(names.ENV_MEM_MIB, "9000"), (names.ENV_SLICES, "26")])
def test_another_amount_in_the_environment_is_a_fault(variable: str, value: str, world: World) -> None:
    world.environments["train"][variable] = value
    assert "train: main may use" in world.fault()


def test_a_missing_annotation_is_a_fault(world: World) -> None:
    world.pods["train"]["metadata"]["annotations"] = {}
    assert "train: it runs on GPUs without the annotation" in world.fault()


def test_a_malformed_annotation_is_a_fault(world: World) -> None:
    world.note("train", "{")
    assert names.ALLOCATION in world.fault()


def test_books_that_say_another_gpu_are_a_fault(world: World) -> None:
    world.booked["train"] = {**TRAIN, "uuid": "GPU-a1", "index": 1}
    assert "train: its annotation says" in world.fault()


def test_books_that_charge_another_amount_are_a_fault(world: World) -> None:
    world.gpus[0] |= {"memUsed": 9, "pods": [told.a_holder("train", 9, 25)]}
    assert "train: its annotation says" in world.fault()


def test_an_annotation_that_gives_less_than_asked_is_a_fault(world: World) -> None:
    world.pods["train"]["spec"]["containers"][0]["resources"]["limits"][names.GPU_MEM] = "11"
    assert "train: main requests (11, 25, False)" in world.fault()


def test_fewer_gpus_than_asked_are_a_fault(world: World) -> None:
    world.pods["big"]["spec"]["containers"][0]["resources"]["limits"][names.WHOLE_GPU] = "2"
    assert "big: main requests 2 GPUs" in world.fault()


def test_a_gpu_of_another_node_is_a_fault(world: World) -> None:
    world.pods["train"]["spec"]["nodeName"] = "node-b"
    assert "train: it is on node-b, which has no GPU GPU-a0" in world.fault()


def test_a_gpu_given_away_twice_is_a_fault(world: World) -> None:
    holders = [*world.gpus[0]["pods"], told.a_holder("other", 70, 10)]
    world.gpus[0] |= {"memUsed": 80, "slicesUsed": 35, "pods": holders}
    assert "node-a GPU 0 has 79 units, but 80 units and 35 slices are allocated" in world.fault()


def test_a_whole_gpu_that_is_shared_is_a_fault(world: World) -> None:
    world.gpus[1]["pods"] = [*world.gpus[1]["pods"], told.a_holder("other")]
    assert "node-a GPU 1 is allocated as a whole and yet shared" in world.fault()


def test_sums_that_are_not_those_of_the_pods_are_a_fault(world: World) -> None:
    world.gpus[0]["memUsed"] = 30
    assert "node-a GPU 0: its sums" in world.fault()


def test_pods_without_gpus_are_not_counted(world: World) -> None:
    world.pods["idle"] = {"metadata": {"name": "idle"}, "spec": {"containers": [{"name": "main"}]}}
    world.environments["idle"] = {}
    assert world.checked() == Outcome(2, ())


def a_member(name: str, epoch: int = 1, key: str = "default/team", node: str = "node-a") -> Pod:
    """A member of a gang, with GPUs or without."""
    noted = told.an_allocation("main") | {"containers": {}, "group": {"key": key, "epoch": epoch, "size": 2}}
    annotations = {names.ALLOCATION: msgspec.json.encode(noted).decode()} if node else {}
    return as_record({"metadata": {"name": name, "annotations": annotations}, "spec": {"nodeName": node}})


def a_gang(**said: Any) -> Group:
    usual = {"namespace": "default", "name": "team", "phase": "Running", "minMember": 2, "epoch": 1, "bound": 2}
    return msgspec.convert(usual | said, Group)


def test_a_whole_gang_has_no_faults() -> None:
    assert not list(gang([a_member("a"), a_member("b")], a_gang()))


@pytest.mark.parametrize(
    ("members", "said", "fault"),
    [
        ([a_member("a")], {"bound": 1}, "1 of at least 2 members are bound"),
        ([a_member("a"), a_member("b", node="")], {"bound": 1}, "1 of at least 2 members are bound"),
        ([a_member("a"), a_member("b")], {"phase": "Waiting"}, "default/team is Waiting"),
        ([a_member("a"), a_member("b")], {"bound": 1}, "2 members are bound, the books say 1"),
        ([a_member("a"), a_member("b", epoch=2)], {}, "b: its annotation says"),
        ([a_member("a"), a_member("b", key="default/other")], {}, "b: its annotation says"),
    ],
    ids=["one-is-missing", "one-waits", "it-does-not-run", "books-differ", "another-start", "another-gang"],
)
def test_half_a_gang_is_a_fault(members: list[Pod], said: dict[str, Any], fault: str) -> None:
    assert fault in "\n".join(gang(members, a_gang(**said)))


def test_a_gang_that_nobody_knows_is_a_fault() -> None:
    assert list(gang([], None)) == ["the gang is not in the books"]
