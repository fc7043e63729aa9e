"""Pods on MIG instances: who gets which, what the containers see, and what others are told."""

from typing import Any

import pytest

from deviceplugin import adopt, devices, holdings
from deviceplugin.adopt import Claim, decide
from deviceplugin.answers import CDI_ANNOTATION, Strategy, Style, answer
from deviceplugin.checkpoint import Entry
from deviceplugin.devices import Sharing
from deviceplugin.isolation import demands
from deviceplugin.machine import Machine, MpsLevel
from deviceplugin.mig.strategy import Strategy as Mig
from deviceplugin.mps import exchange, level
from deviceplugin.mps.exchange import Served, State
from deviceplugin.record import Record
from protos.contract import allocation, codec, mig, names
from protos.contract.allocation import Allocation, Share
from protos.contract.inventory import Inventory
from protos.contract.isolation import Isolation
from protos.contract.objects import Pod
from protos.kubelet.podresources.v1 import podresources_v1_pb2 as api
from tests.unit.deviceplugin.builders import KEYS, a_container, a_pod, a_split_machine

SMALL = KEYS["small"]
MIXED = Sharing(mig=Mig.MIXED)
SPLIT = a_split_machine("1g.10gb", "1g.10gb", "3g.40gb", whole=1)
R = names.Resources()


def an_inventory(machine: Machine = SPLIT, sharing: Sharing = MIXED, **more: str) -> Inventory:
    health = {gpu.uuid: "mig" for gpu in machine.gpus if gpu.mig}
    return devices.inventory(machine, health | {uuid.replace("_", "-"): word for uuid, word in more.items()}, sharing)


NODE = an_inventory()


def claim(pod: Pod, **given: tuple[str, ...]) -> Claim:
    found = adopt.claim_of(pod, R, given)
    assert found is not None
    return found


def uuids(decision: adopt.Decision) -> list[str]:
    return [share.uuid for share in decision.shares.get("main", ())]


def annotated(uuid: str, index: int) -> dict[str, str]:
    containers: dict[str, tuple[Share, ...]] = {"main": (Share(uuid, index, 9, 14, True),)}
    return {
        names.ALLOCATION: allocation.encode(
            Allocation(v=codec.VERSION, unit_mib=1024, slices_per_gpu=100, containers=containers)
        )
    }


def test_without_an_extender_only_a_free_instance_of_the_profile_is_chosen() -> None:
    first = claim(a_pod("a", a_container(small=1)), main=("MIG-0-0",))
    second = claim(a_pod("b", a_container(small=1)), main=("MIG-0-1",))
    asking = claim(a_pod("p", a_container(small=1)))
    assert uuids(decide(asking, [], NODE)) == ["MIG-0-0"]
    assert uuids(decide(asking, [first], NODE)) == ["MIG-0-1"]
    full = decide(asking, [first, second], NODE)
    assert full.refusal is not None
    assert full.refusal.code == "NodeFull"


def test_an_instance_is_given_whole_to_who_asks_an_amount() -> None:
    decision = decide(claim(a_pod("p", a_container(mem=8))), [], NODE)
    (share,) = decision.shares["main"]
    assert (share.uuid, share.whole, share.mem) == ("MIG-0-0", True, 9)


def test_the_annotation_decides_unless_its_instance_is_held_sick_or_of_another_profile() -> None:
    pod = a_pod("p", a_container(small=1), annotations=annotated("MIG-0-1", mig.index(0, 1)))
    assert uuids(decide(claim(pod), [], NODE)) == ["MIG-0-1"]
    held = decide(claim(pod), [claim(a_pod("o", a_container(small=1)), main=("MIG-0-1",))], NODE)
    assert (held.how, uuids(held), held.why) == ("moved", ["MIG-0-0"], "GPU 0:1 is held whole")
    sick = decide(claim(pod), [], an_inventory(MIG_0_1="sick:xid-94"))
    assert (uuids(sick), sick.why) == (["MIG-0-0"], "GPU 0:1 is sick:xid-94")
    other = a_pod("p", a_container(small=1), annotations=annotated("MIG-0-2", mig.index(0, 2)))
    assert uuids(decide(claim(other), [], NODE)) == ["MIG-0-0"]
    card = a_pod("p", a_container(small=1), annotations=annotated("GPU-1", 1))
    assert uuids(decide(claim(card), [], NODE)) == ["MIG-0-0"]
    whole = a_pod("p", a_container(whole=1), annotations=annotated("MIG-0-0", mig.index(0, 0)))
    assert uuids(decide(claim(whole), [], NODE)) == ["GPU-1"]


def test_what_another_plugin_gave_is_taken_over_from_the_checkpoint() -> None:
    record = Record()
    entry = Entry("uid-p", "main", SMALL, ("MIG-0-1",), {"NVIDIA_VISIBLE_DEVICES": "MIG-0-1"})
    assert record.load([entry], NODE, MIXED) == {SMALL}
    assert record.given("uid-p") == {"main": ("MIG-0-1",)}
    assert record.in_use() == {"MIG-0-1"}
    theirs = claim(a_pod("p", a_container(small=1)), main=("MIG-0-1",))
    assert uuids(decide(claim(a_pod("q", a_container(small=1))), [theirs], NODE)) == ["MIG-0-0"]
    correct = adopt.corrected(theirs, NODE)
    assert correct is not None
    assert [(share.uuid, share.whole) for share in correct.containers["main"]] == [("MIG-0-1", True)]
    untold = Record()
    assert not untold.load([entry], NODE, Sharing())
    assert not untold.in_use()


def test_a_holder_of_an_instance_that_is_no_more_keeps_it() -> None:
    shares = adopt.shares_of(
        claim(a_pod("p", a_container(small=1))).ask, {"main": ("MIG-x",)}, adopt.books(NODE, (), [], annotated=False)
    )
    assert [(share.uuid, share.whole) for share in shares["main"]] == [("MIG-x", True)]


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_container_sees_its_instance_and_no_limits(strategy: Strategy) -> None:
    pod = claim(a_pod("p", a_container(mem=8)))
    shares = decide(pod, [], an_inventory(SPLIT, MIXED)).shares["main"]
    style = Style(strategy=strategy, control_nodes=("/dev/nvidiactl",))
    nodes = {"MIG-0-0": ("/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13")}
    found = answer(pod.ask.container("main"), shares, NODE, style, nodes=nodes)
    assert found.envs[names.ENV_UUIDS] == "MIG-0-0"
    assert found.envs[names.ENV_MEM_MIB] == "9728"
    assert names.MEMORY_LIMIT not in found.envs
    assert not any(name.startswith(names.MPS_VARIABLES) for name in found.envs)
    by_strategy: dict[Strategy, Any] = {
        Strategy.ENVVAR: found.envs[names.VISIBLE_DEVICES] == "MIG-0-0",
        Strategy.DEVICE_NODES: [node.host_path for node in found.devices]
        == ["/dev/nvidiactl", "/dev/nvidia0", *nodes["MIG-0-0"]],
        Strategy.VOLUME_MOUNTS: [m.container_path for m in found.mounts]
        == ["/var/run/nvidia-container-devices/MIG-0-0"],
        Strategy.CDI_CRI: [device.name for device in found.cdi_devices] == ["nvidia.com/gpu=MIG-0-0"],
        Strategy.CDI_ANNOTATIONS: found.annotations[CDI_ANNOTATION] == "nvidia.com/gpu=MIG-0-0",
    }
    assert by_strategy[strategy]


def test_an_instance_has_no_limit_of_the_driver_and_meets_every_demand() -> None:
    driver = devices.inventory(SPLIT, {"GPU-0": "mig"}, MIXED, Isolation("driver", why="x"))
    pod = a_pod("p", a_container(mem=8), annotations={names.ISOLATION: "compute"})
    decision = decide(claim(pod), [], driver)
    assert uuids(decision) == ["MIG-0-0"]
    assert demands.limit_mib(decision.shares["main"], driver) == 0
    assert demands.refusal(claim(pod), decision.shares, driver) is None
    part = {"main": (Share("GPU-1", 1, 8),)}
    assert demands.refusal(claim(pod), part, driver) is not None
    assert demands.refusal(claim(pod), {}, driver) is not None, "nothing is chosen yet, and it asks a part"


def test_dcgm_exporter_is_told_the_instance() -> None:
    pods = {
        "by-profile": holdings.ids(a_pod("by-profile", a_container(small=1)), {"main": ("MIG-0-0",)}, NODE, R),
        "by-amount": holdings.ids(a_pod("by-amount", a_container(mem=8)), {"main": ("MIG-0-1",)}, NODE, R),
        "part": holdings.ids(a_pod("part", a_container(mem=8)), {"main": ("GPU-1",)}, NODE, R),
    }
    assert {name: ids["main"] for name, ids in pods.items()} == {
        "by-profile": ("MIG-0-0",),
        "by-amount": ("MIG-0-1",),
        "part": ("GPU-1::main",),
    }


def test_the_kubelets_own_name_of_an_instance_is_replaced_by_the_true_one() -> None:
    def listed(name: str) -> api.PodResources:
        device = api.ContainerDevices(resource_name=SMALL, device_ids=["MIG-0-1"])
        container = api.ContainerResources(name="main", devices=[device])
        return api.PodResources(namespace="default", name=name, containers=[container])

    ours, theirs = holdings.corrected([listed("p"), listed("q")], {("default", "p"): {"main": ("MIG-0-0",)}}, R)
    assert [list(device.device_ids) for device in ours.containers[0].devices] == [["MIG-0-0"]]
    assert [list(device.device_ids) for device in theirs.containers[0].devices] == [["MIG-0-1"]]


def test_instances_take_no_part_in_the_level_of_mps() -> None:
    state = State(v=1, beat=exchange.now(), protocol=3, gpus={"GPU-1": Served(phase="serving")})
    assert level.level(state, SPLIT, exchange.now()).compute == "mps"
    alone = Machine(gpus=tuple(gpu for gpu in SPLIT.gpus if gpu.uuid != "GPU-1"))
    none = State(v=1, beat=exchange.now(), protocol=3, gpus={})
    assert level.level(none, alone, exchange.now()) == MpsLevel(why="MPS serves no GPU now")
    blocked = State(v=1, beat=exchange.now(), protocol=3, gpus={"GPU-0": Served(phase="blocked")})
    for each in (state, blocked):
        assert level.marked(SPLIT, each, exchange.now()).gpus == SPLIT.gpus, "its instances go on"
