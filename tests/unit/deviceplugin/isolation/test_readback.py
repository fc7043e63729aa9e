"""Limits are read back: asked, given, enforced; a hook that does not run; restarts; plugins that start anew."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import pytest_asyncio

from deviceplugin.checkpoint import Entry
from deviceplugin.cluster import Cluster
from deviceplugin.devices import Sharing
from deviceplugin.health import Health
from deviceplugin.isolation import readback
from deviceplugin.isolation.checks import STATES, Limiter
from deviceplugin.isolation.evict import Evictor
from deviceplugin.isolation.levels import Mode
from deviceplugin.isolation.provers import DriverProver, Prover
from deviceplugin.isolation.readback import ReadBack, Remedies
from deviceplugin.machine import Machine, MemoryLimit, Xid
from deviceplugin.metrics import Metrics
from deviceplugin.offer import Offer
from deviceplugin.podresources import PodResources
from deviceplugin.record import Record
from deviceplugin.sense import Senses
from extender.sim.kubelet.runtime import HookError
from protos.contract import names
from protos.contract.objects import Pod
from protos.kube import errors
from tests.sim.standin_toolkit import Driver, apply_limits, group_of
from tests.unit.deviceplugin.builders import a_gpu, a_watch
from tests.unit.deviceplugin.isolation.hosts import groups, real_groups
from tests.unit.deviceplugin.isolation.test_checks import running

GIB = 2**30
POD = "0a1b2c3d-1111-2222-3333-444455556666"
FIRST, SECOND = "ab" * 32, "cd" * 32


class Source:
    """A machine of two GPUs whose driver is the stand-in."""

    period = 3600.0
    trouble = None

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.asked: list[str] = []

    def read(self) -> Machine:
        gpus = (a_gpu(0), a_gpu(1))
        return Machine(gpus=gpus, driver=self.driver.version, limits=self.driver.has_call, toolkit="1.20.1")

    def poll(self, timeout: float) -> list[Xid]:
        return []

    def memory_limit(self, uuid: str, cgroup: str) -> MemoryLimit | None:
        self.asked.append(cgroup)
        return self.driver.get(uuid, cgroup)

    def close(self) -> None:
        return


class Api:
    """An API server that takes evictions and Events, or refuses the former."""

    def __init__(self) -> None:
        self.evicted: list[str] = []
        self.refusal: Exception | None = None
        self.events: list[str] = []

    async def post(self, where: Any, *what: Any, **more: Any) -> Any:
        if not isinstance(where, str):  # as the recorder of Events
            self.events.append(f"{where.kind} {what[0]}: {what[1]}")
            return True
        if self.refusal is not None:
            raise self.refusal
        assert what[0]["deleteOptions"]["preconditions"]["uid"] == POD
        self.evicted.append(where)
        return b"{}"


class Node:
    """One node: its control groups, its driver, its pods and the plugin's parts that check them."""

    def __init__(self, root: Path, mode: Mode = Mode.AUTO) -> None:
        self.root, self.driver, self.api, self.now = (
            root,
            Driver(memory={"GPU-0": 16 * GIB, "GPU-1": 16 * GIB}),
            Api(),
            0.0,
        )
        (root / "kubepods.slice").mkdir(exist_ok=True)
        self.source = Source(self.driver)
        self.start(mode)

    def start(self, mode: Mode = Mode.AUTO, evicts: bool = False) -> None:
        """A plugin that starts anew, and knows what the kubelet's checkpoint says."""
        self.record, self.metrics, api = Record(), Metrics(), cast(Any, self.api)
        self.cluster = Cluster(api, "n", api)
        self.offer, self.watch = Offer(Sharing()), a_watch(mode, self.root)
        kubelet, health = PodResources(self.root / "none.sock"), Health()
        self.senses = Senses(self.source, health, self.offer, kubelet, self.metrics, self.cluster.tell_node, self.watch)
        evictor = Evictor(self.cluster) if evicts else None
        provers: dict[Limiter, Prover] = {"driver": DriverProver(self.source, pods=False)}
        self.pending: set[str] = set()
        """The pods whose limits are being changed."""
        changing = lambda pod: pod.metadata.uid in self.pending  # noqa: E731
        self.checks = ReadBack(
            self.senses, self.cluster, self.record, self.watch, self.root, provers, Remedies(evictor, changing=changing)
        )
        self.kubelet = kubelet

    def given(self, mib: str = "4096", gpus: str = "GPU-0") -> dict[str, str]:
        """The environment of the container that the checkpoint has; the plugin knows it from there."""
        env = {names.ENV_MEM_MIB: mib, names.ENV_UUIDS: gpus, names.VISIBLE_DEVICES: gpus}
        env |= {names.MEMORY_REQUEST: mib, names.MEMORY_LIMIT: mib}
        self.record.load([Entry(POD, "main", names.GPU_MEM, (), env)], self.offer.inventory, self.offer.sharing)
        return env

    def runs(self, env: dict[str, str], number: str = FIRST, hook: bool = True) -> Pod:
        """The runtime makes the container's group, runs the hook if it has one, and the kubelet tells."""
        group = group_of(self.root, POD, number)
        group.mkdir(parents=True)
        if hook:
            apply_limits(env, group, self.root, self.driver)
        return self.tells(number)

    def tells(self, number: str) -> Pod:
        pod = running("p", number)
        pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=POD))
        self.cluster.pods["default", "p"] = pod
        return pod

    async def look(self, later: float = 0.0) -> dict[str, float]:
        """One look; containers by state."""
        for check in self.checks._checks.values():
            check.due -= later
        await self.checks.look()
        return {state: self.metrics.isolated.labels(state)._value.get() for state in STATES}

    @property
    def level(self) -> str:
        isolation = self.offer.inventory.isolation
        return isolation.memory if isolation else "none"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with groups(tmp_path) as found:
        yield found


@pytest_asyncio.fixture
async def node(root: Path) -> AsyncIterator[Node]:
    made = Node(root)
    await made.senses.read([])
    assert made.level == "driver"
    yield made
    await made.kubelet.close()


ENFORCED = {"unknown": 0.0, "enforced": 1.0, "mismatch": 0.0}
UNKNOWN = {"unknown": 1.0, "enforced": 0.0, "mismatch": 0.0}
MISMATCH = {"unknown": 0.0, "enforced": 0.0, "mismatch": 1.0}
NONE = dict.fromkeys(ENFORCED, 0.0)


def test_the_groups_of_these_tests_are_real_where_they_can_be() -> None:
    with real_groups() as found:
        if found is None:
            pytest.skip("this process may not make control groups of version 2: folders stand in")
        (found / "below").mkdir()
        assert (found / "below" / "cgroup.procs").exists()
    assert not found.exists()


async def test_what_was_given_is_enforced_and_asked_again_now_and_then(node: Node) -> None:
    node.runs(node.given(gpus="GPU-0,GPU-1"))
    assert await node.look() == ENFORCED
    assert set(node.source.asked) == {str(group_of(node.root, POD, FIRST))}
    asked = len(node.source.asked)
    await node.look()
    assert len(node.source.asked) == asked, "not at every look"
    assert await node.look(readback.AGAIN_S) == ENFORCED
    assert len(node.source.asked) == 2 * asked
    assert node.api.events == []
    assert node.metrics.isolation_checks.labels("enforced")._value.get() == 1.0


async def test_without_the_hook_it_is_told_once_and_the_node_promises_only(node: Node) -> None:
    node.runs(node.given(), hook=False)
    for _ in range(3):
        assert await node.look(readback.AGAIN_S) == MISMATCH
    assert node.level == ""
    assert node.offer.inventory.isolation is not None
    assert "the runtime does not run the toolkit's hook" in node.offer.inventory.isolation.why
    assert node.api.events == [
        "Pod IsolationMismatch: container main has no memory limit on GPU 0: it was given 4096 MiB"
    ]
    assert node.metrics.isolation_checks.labels("mismatch")._value.get() == 1.0


async def test_another_limit_than_was_given_is_told_and_the_node_keeps_its_level(node: Node) -> None:
    node.runs(node.given())
    assert await node.look() == ENFORCED
    node.driver.set("GPU-0", group_of(node.root, POD, FIRST), 0, 8 * GIB)
    assert await node.look(readback.AGAIN_S) == MISMATCH
    assert node.level == "driver"
    assert "has a memory limit of 8192 MiB on GPU 0: it was given 4096 MiB" in node.api.events[0]


async def test_a_container_whose_group_is_not_found_is_unknown_and_asked_less_and_less(node: Node) -> None:
    env = node.given()
    node.tells(FIRST)
    pauses = []
    for _ in range(9):
        assert await node.look(readback.AGAIN_S) == UNKNOWN
        (check,) = node.checks._checks.values()
        pauses.append(check.pause)
    assert pauses == [2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert (node.api.events, node.level) == ([], "driver")
    node.runs(env)
    assert await node.look(readback.AGAIN_S) == ENFORCED


async def test_what_is_known_holds_while_the_driver_does_not_answer(node: Node) -> None:
    node.runs(node.given())
    assert await node.look() == ENFORCED
    group_of(node.root, POD, FIRST).rmdir()
    assert await node.look(readback.AGAIN_S) == ENFORCED
    assert node.api.events == []


async def test_a_restarted_container_is_checked_again(node: Node) -> None:
    env = node.given()
    node.runs(env)
    assert await node.look() == ENFORCED
    node.runs(env, SECOND, hook=False)
    assert await node.look() == MISMATCH
    assert len(node.checks._checks) == 1, "nothing is kept of the container that ended"


async def test_a_plugin_that_starts_anew_checks_what_an_earlier_one_gave(node: Node) -> None:
    env = node.given()
    node.runs(env, hook=False)
    await node.kubelet.close()
    node.start()
    await node.senses.read([])
    node.given()
    node.tells(FIRST)
    assert node.level == "driver"
    assert await node.look() == MISMATCH
    assert node.level == ""


async def test_a_level_that_fell_comes_back_with_another_driver_or_toolkit_only(node: Node) -> None:
    node.runs(node.given(), hook=False)
    await node.look()
    await node.senses.read([])
    assert node.level == ""
    node.driver.version = "616.10"
    await node.senses.read([])
    assert node.level == "driver"


async def test_a_driver_downgraded_under_a_running_container_lets_it_run_and_the_next_one_not_start(node: Node) -> None:
    env = node.given()
    node.runs(env)
    node.driver.version, node.driver.has_call = "595.91", False
    await node.senses.read([])
    assert node.level == ""
    assert await node.look() == ENFORCED
    with pytest.raises(HookError):
        node.runs(env, SECOND)


async def test_a_pod_that_is_gone_is_forgotten(node: Node) -> None:
    node.runs(node.given())
    await node.look()
    node.cluster.pods.clear()
    assert await node.look() == NONE
    assert node.checks._checks == {}


async def test_at_most_so_many_are_read_at_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readback, "AT_ONCE", 0)
    node.runs(node.given())
    assert await node.look() == UNKNOWN
    assert node.source.asked == []


async def test_by_setting_the_pod_is_evicted(node: Node) -> None:
    await node.kubelet.close()
    node.start(evicts=True)
    await node.senses.read([])
    node.runs(node.given(), hook=False)
    await node.look()
    assert node.api.evicted == ["/api/v1/namespaces/default/pods/p/eviction"]
    assert [event.split(":")[0] for event in node.api.events] == ["Pod IsolationMismatch", "Pod IsolationEvicted"]


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (errors.Forbidden("POST", 403), ["Node IsolationEvictForbidden"]),
        (errors.Protected("POST", 429), []),
        (errors.Unavailable("POST"), []),
        (errors.NotFound("POST", 404), []),
        (errors.Conflict("POST", 409), []),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_an_eviction_that_is_refused_is_tried_again_and_a_missing_right_told_once(
    node: Node, refusal: Exception, told: list[str]
) -> None:
    await node.kubelet.close()
    node.start(evicts=True)
    await node.senses.read([])
    node.api.refusal = refusal
    node.runs(node.given(), hook=False)
    for _ in range(3):
        await node.look(readback.AGAIN_S)
    assert [event.split(":")[0] for event in node.api.events] == ["Pod IsolationMismatch", *told]
    node.api.refusal = None
    await node.look(readback.AGAIN_S)
    assert len(node.api.evicted) == 1


@pytest.mark.parametrize(
    "env",
    [
        {names.MEMORY_REQUEST: "4096"},
        {names.MEMORY_LIMIT: "4096"},
        {},
    ],
    ids=str,
)
def test_the_stand_in_does_nothing_unless_both_are_set(env: dict[str, str], tmp_path: Path) -> None:
    driver = Driver()
    apply_limits({names.VISIBLE_DEVICES: "GPU-0", **env}, tmp_path, tmp_path, driver)
    assert driver.limits == {}


@pytest.mark.parametrize(
    ("request_mib", "limit_mib", "unified", "has_call"),
    [
        ("4096", "4096", False, True),
        ("4Gi", "4096", True, True),
        ("4096", "2048", True, True),
        ("4096", "4096", True, False),
        ("99999", "99999", True, True),
    ],
    ids=["cgroup v1", "no number", "request above limit", "older driver", "more than the GPU has"],
)
def test_the_stand_in_fails_as_hard_as_the_hook(
    request_mib: str, limit_mib: str, unified: bool, has_call: bool, tmp_path: Path
) -> None:
    if unified:
        (tmp_path / "cgroup.controllers").write_text("")
    env = {
        names.VISIBLE_DEVICES: "GPU-0",
        names.MEMORY_REQUEST: request_mib,
        names.MEMORY_LIMIT: limit_mib,
    }
    with pytest.raises(HookError):
        apply_limits(env, tmp_path, tmp_path, Driver(has_call=has_call, memory={"GPU-0": 16 * GIB}))


async def test_a_pod_whose_limit_is_being_changed_is_left_alone(node: Node) -> None:
    """A plugin that started anew expected the limit from before, and evicted the pod."""
    node.start(evicts=True)
    await node.senses.read([])
    node.runs(node.given())
    node.driver.set("GPU-0", group_of(node.root, POD, FIRST), 5 * GIB, 5 * GIB)
    node.pending.add(POD)
    assert await node.look() == NONE
    node.record.resize(POD, {"main": 5120})
    node.pending.clear()
    assert await node.look() == ENFORCED
    assert node.api.evicted == []


async def test_a_limit_that_changes_while_it_is_read_is_read_again(node: Node) -> None:
    node.start(evicts=True)
    await node.senses.read([])
    node.runs(node.given())
    read = node.source.memory_limit

    def resized_meanwhile(uuid: str, cgroup: str) -> MemoryLimit | None:
        found = read(uuid, cgroup)
        node.record.resize(POD, {"main": 5120})
        node.driver.set("GPU-0", Path(cgroup), 5 * GIB, 5 * GIB)
        return found

    node.source.memory_limit = resized_meanwhile  # type: ignore[method-assign]
    assert await node.look() == UNKNOWN
    node.source.memory_limit = read  # type: ignore[method-assign]
    assert await node.look() == ENFORCED
    assert node.api.evicted == []
