"""Dashboards and alerts against a real Prometheus, which scrapes a run of extender, plugins and measuring process."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
import pytest_asyncio
import yaml

from extender.sim.kubelet.status import NodeSpec
from extender.sim.process import free_port
from extender.sim.spec import PluginPlace, gangshare_plugin
from protos.contract import names
from tests.cluster import needed
from tests.monitoring import alerts, boards, prometheus
from tests.monitoring.files import RULES, rules
from tests.monitoring.grafana import Dashboard, Panel, Variable
from tests.monitoring.prometheus import Prometheus, Target, promtool
from tests.scenarios import embedded, queue_stories
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.gangs import all_run, pods
from tests.scenarios.jobs.submitted import gang, submit
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.preemption_stories import CLASSES, WHOLE
from tests.scenarios.queue_stories import a_queue, known
from tests.scenarios.stories import T4, mem, on, phase, refused_with, run, until
from tests.scenarios.test_measuring import GIB, Driver, measuring
from tests.scenarios.world import Object

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
_SECONDS = 60.0
"""For anything that Prometheus reads or evaluates."""
LIMITS = "node-limits"
"""A node whose driver limits memory."""
GRAFANA = {
    "$__rate_interval": "5m",
    "$__range": "5m",
    "$node": ".*",
    "$queue": ".*",
    "$namespace": ".*",
    "$price": "2",
}
"""What Grafana puts in the place of its variables."""
PANELS = [(board, panel) for board in boards.ALL for panel in board.panels]
VARIABLES = [(board, variable) for board in boards.ALL for variable in board.variables if variable.metric]


class Run(NamedTuple):
    """Prometheus, and where it reads."""

    world: EmbeddedWorld
    prometheus: Prometheus
    targets: tuple[Target, ...]


@pytest.fixture(scope="module")
def tools() -> None:
    with needed.or_skip():
        prometheus.require()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def recorded(tools: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Run]:
    folder = tmp_path_factory.mktemp("prometheus")
    nodes = (NodeSpec(name=T4, profile="t4x4"), NodeSpec(name=LIMITS, profile=str(_limiting(folder))))
    ports = {node.name: free_port() for node in nodes}

    def plugin(place: PluginPlace) -> list[str]:
        isolated = ["--isolation=auto", f"--cgroup-root={folder / 'cgroup'}"]
        return [*gangshare_plugin(place), f"--metrics-port={ports[place.node]}", *isolated]

    async with AsyncExitStack() as stack:
        cluster = embedded.a_cluster(*nodes, extender_args=["--min-runtime=0"], plugin_command=plugin)
        world = EmbeddedWorld(await stack.enter_async_context(cluster))
        for each in (*CLASSES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.NAMESPACE}}):
            await world.create(each)
        await world.define(queue_stories.definitions()[0])
        driver = Driver(world, folder)
        usage = await stack.enter_async_context(measuring(world, driver))
        status = int(cluster.place.status_listen.rpartition(":")[2])
        targets = (
            Target(status, {"namespace": names.NAMESPACE}),
            *(Target(port, {"namespace": names.NAMESPACE, "node": node}) for node, port in ports.items()),
            Target(usage, {"namespace": names.NAMESPACE}, honor_labels=True),
        )
        served = await stack.enter_async_context(Prometheus(folder, targets, RULES))
        recorded = Run(world, served, targets)
        await _story(recorded, driver)
        yield recorded


def _limiting(folder: Path) -> Path:
    """The profile of that node, and the control groups that its driver limits."""
    (folder / "cgroup/kubepods.slice").mkdir(parents=True)
    (folder / "cgroup/cgroup.controllers").write_text("cpu memory\n")
    profile = folder / "limits.yaml"
    defaults = {"model": "Tesla T4", "memMiB": 14910, "cc": "7.5"}
    machine = {"defaults": defaults, "gpus": [{}, {}], "driver": "615.71.05", "toolkit": "1.20.1"}
    profile.write_text(yaml.safe_dump(machine))
    return profile


async def _story(recorded: Run, driver: Driver) -> None:
    """Parts of GPUs in queues, gangs one after another, a preemption, a pod that waits, and one that is refused.

    Rates need two values of a series: the story goes on when Prometheus has read the first one.
    """
    world = recorded.world
    for name in ("research", "web"):
        await world.create(a_queue(name, weight=1))
    await known(world, "research", "web")
    in_queue = {"labels": {names.QUEUE: "research"}, **on(T4)}
    for i in range(2):
        await run(world, a_pod(f"part-{i}", a_container(limits=mem(8)), **in_queue))
        await read(recorded, "gangshare_plugin_allocate_seconds_count", "gangshare_verb_seconds_count")
    await driver.use("part-0", 101, 9 * GIB, 40)
    await driver.use("part-1", 102, 1 * GIB, 0)
    for name, priority in (("cheap", "spot"), ("urgent", "urgent")):  # there is room for one of them
        job = gang(name, pods(name, 2, WHOLE, priorityClassName=priority, **on(T4)))
        await submit(world, job)
        await all_run(world, job.names)
        await read(
            recorded, *(f'gangshare_gang_phase_seconds_count{{phase="{phase}"}}' for phase in ("Waiting", "Binding"))
        )
    await run(world, a_pod("limited", a_container(limits=mem(2)), **on(LIMITS)))
    await world.create_pod(a_pod("waits", a_container(limits={names.WHOLE_GPU: 3}), **on(LIMITS)))
    await refused_with(world, "waits")
    await world.create_pod(
        a_pod("stranger", a_container(limits=mem(12)), nodeName=T4, schedulerName="default-scheduler")
    )

    async def refused() -> bool:
        return await phase(world, "stranger") == "Failed"

    await until(world, refused, "the pod that somebody else bound is refused")


async def read(recorded: Run, *counters: str) -> None:
    """Until Prometheus has read these counters."""
    for counter in counters:

        async def counted(counter: str = counter) -> bool:
            return any((await recorded.prometheus.ask(counter)).values)

        await recorded.world.wait(counted, _SECONDS, f"Prometheus reads {counter}")


def filled(expr: str) -> str:
    """The query as Grafana sends it."""
    for name, value in GRAFANA.items():
        expr = expr.replace(name, value)
    assert "$" not in expr
    return expr


async def scraped(target: Target) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{target.port}/metrics") as answer:
        return await answer.text()


def _titled(value: object) -> str | None:
    if isinstance(value, Dashboard):
        return value.file
    return value.title if isinstance(value, Panel) else value.name if isinstance(value, Variable) else None


@pytest.mark.parametrize(("board", "panel"), PANELS, ids=_titled)
async def test_each_query_of_a_panel_returns_data(recorded: Run, board: Dashboard, panel: Panel) -> None:
    for query in panel.queries:
        expr, answer = filled(query.expr), prometheus.Answer(())

        async def answered(expr: str = expr) -> bool:
            nonlocal answer
            answer = await recorded.prometheus.ask(expr)
            return any(value == value for value in answer.values)  # not only NaN

        try:
            await recorded.world.wait(answered, _SECONDS, f"`{expr}` returns data")
        except TimeoutError as error:
            raise AssertionError(f"{error}: {answer}") from error


@pytest.mark.parametrize(("board", "variable"), VARIABLES, ids=_titled)
async def test_each_variable_has_values(recorded: Run, board: Dashboard, variable: Variable) -> None:
    found = await recorded.prometheus.get(f"label/{variable.name}/values", **{"match[]": variable.metric})
    assert found["data"]


async def test_prometheus_evaluates_each_alert_without_an_error(recorded: Run) -> None:
    names_of_all = {rule["alert"] for group in rules()["groups"] for rule in group["rules"]}
    loaded: dict[str, Object] = {}

    async def states(wanted: dict[str, str]) -> bool:
        found = await recorded.prometheus.get("rules")
        loaded.update({rule["name"]: rule for group in found["data"]["groups"] for rule in group["rules"]})
        return {name: loaded[name]["state"] for name in wanted} == wanted

    wrong = {
        "GangshareMemoryOverPromise": "pending",  # part-0
        "GangshareAllocateRefused": "firing",  # the stranger
    }
    await recorded.world.wait(lambda: states(wrong), _SECONDS, "what is wrong in the run is told")
    quiet = ("GangshareNoLeader", "GangshareTargetDown", "GangshareInvariantViolated", "GangshareInternalErrors")
    assert await states(dict.fromkeys(quiet, "inactive"))
    assert set(loaded) == names_of_all
    assert {(rule["health"], rule.get("lastError", "")) for rule in loaded.values()} == {("ok", "")}


async def test_promtool_finds_nothing_in_what_the_processes_serve(recorded: Run) -> None:
    for target in recorded.targets:
        text = await scraped(target)
        assert len(re.findall("^# TYPE gangshare_", text, re.MULTILINE)) > 10
        assert promtool("check", "metrics", given=text.encode()) == ""


@pytest.mark.usefixtures("tools")
async def test_each_alert_fires_when_it_should_and_not_otherwise(tmp_path: Path) -> None:
    assert {case.alert for case in alerts.CASES} == {r["alert"] for group in rules()["groups"] for r in group["rules"]}
    assert "SUCCESS" in promtool("check", "rules", str(RULES))
    promtool("test", "rules", str(alerts.tests(tmp_path)))
