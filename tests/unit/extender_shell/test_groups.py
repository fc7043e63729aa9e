"""PodGroups of every kind are watched if their definitions exist; missing kinds delay nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import CapturingLogger

from extender.cluster import feed, kinds
from extender.cluster import watch as watches
from extender.cluster.watch import Watches
from extender.engine.types.events import Event, GroupGone, GroupSeen, PodsListed
from extender.metrics import Metrics
from extender.sim.apiserver.api import Api
from gangfilter.group import GroupKey
from protos.contract.reason import Reason
from protos.kube import reflect
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials
from protos.kube.events import Reference
from tests.unit.extender_shell.definitions import COSCHEDULING, OWN, VOLCANO, add_group, define, undefine
from tests.unit.extender_shell.world import FaultyServer, add_pod, until

pytestmark = pytest.mark.usefixtures("quick")

G1 = GroupKey("default", "g1")


class Bench:
    """Watches of one API server and the events that they made."""

    def __init__(self, server: FaultyServer, client: ApiClient) -> None:
        self.server, self.api = server, server.api
        self.told: list[Event] = []
        self.complaints: list[tuple[Reference, Reason]] = []
        self.metrics = Metrics({})
        complain = lambda about, reason: self.complaints.append((about, reason))  # noqa: E731
        self.watches = Watches(client, self.told.append, self.metrics, complain, gpushare=False)
        self.running = asyncio.create_task(self.watches.run())

    async def ready(self) -> None:
        await until(self.watches.replayed.is_set, "replayed")

    def groups(self) -> dict[tuple[str, str], int | None]:
        """The groups that the engine knows: (kind, name) → minimum."""
        found: dict[tuple[str, str], int | None] = {}
        for event in self.told:
            match event:
                case GroupSeen(kind, key, declaration):
                    found[kind, key.name] = declaration.min_member
                case GroupGone(kind, key):
                    del found[kind, key.name]
        return found

    async def shows(self, expected: dict[tuple[str, str], int | None]) -> None:
        await until(lambda: self.groups() == expected, f"groups {expected}")

    def listed(self, kind: str) -> float:
        labels = {"path": f"/apis/{kind}/podgroups"}
        return self.metrics.registry.get_sample_value("gangshare_lists_total", labels) or 0.0

    def watching(self, kind: str) -> float | None:
        return self.metrics.registry.get_sample_value("gangshare_watching", {"path": f"/apis/{kind}/podgroups"})


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> CapturingLogger:
    """What is logged about groups."""
    logger = CapturingLogger()
    for module in (watches, feed, reflect):
        monkeypatch.setattr(module, "log", logger)
    return logger


def warnings(said: CapturingLogger) -> list[tuple[str, Any]]:
    """Event and kind of what is more than information."""
    return [(call.args[0], call.kwargs.get("kind")) for call in said.calls if call.method_name not in ("debug", "info")]


@pytest.fixture
async def server() -> AsyncIterator[FaultyServer]:
    made = FaultyServer(Api())
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def watch(server: FaultyServer) -> AsyncIterator[Callable[[], Bench]]:
    """Starts to watch."""
    made: list[Bench] = []
    async with ApiClient(Credentials(server.url)) as client:

        def start() -> Bench:
            made.append(Bench(server, client))
            return made[-1]

        yield start
        for bench in made:
            bench.running.cancel()
            await asyncio.wait([bench.running])


Watch = Callable[[], Bench]


def answers(path: str, status: int, times: int = 10**9) -> Any:
    """A fault: so many questions for this path are answered by that status."""
    left = [times]

    async def fault(request: web.BaseRequest) -> web.StreamResponse | None:
        if request.path != path or not left[0]:
            return None
        left[0] -= 1
        body = {"kind": "Status", "code": status, "reason": {403: "Forbidden", 404: "NotFound"}.get(status, "")}
        return web.json_response(body, status=status)

    return fault


async def test_existing_groups_are_known_before_the_replay_is_over(server: FaultyServer, watch: Watch) -> None:
    for kind, least in ((OWN, 2), (VOLCANO, 3), (COSCHEDULING, 4)):
        define(server.api, kind)
        add_group(server.api, kind, "g1", minMember=least)
    add_pod(server.api, "p1")
    bench = watch()
    await bench.ready()
    assert bench.groups() == {(OWN, "g1"): 2, (VOLCANO, "g1"): 3, (COSCHEDULING, "g1"): 4}
    order = [type(event) for event in bench.told if isinstance(event, GroupSeen | PodsListed)]
    assert order == [GroupSeen, GroupSeen, GroupSeen, PodsListed]


async def test_a_definition_may_come_later_go_and_come_again(server: FaultyServer, watch: Watch) -> None:
    bench = watch()
    await bench.ready()
    assert bench.watching(VOLCANO) is None
    define(server.api, VOLCANO)
    add_group(server.api, VOLCANO, "g1", minMember=2)
    await bench.shows({(VOLCANO, "g1"): 2})
    assert bench.watching(VOLCANO) == 1.0
    add_group(server.api, VOLCANO, "g2", minMember=5)
    await bench.shows({(VOLCANO, "g1"): 2, (VOLCANO, "g2"): 5})
    undefine(server.api, VOLCANO)
    await bench.shows({})
    await until(lambda: bench.watching(VOLCANO) is None, "nobody asks whether it is followed")
    define(server.api, VOLCANO)
    add_group(server.api, VOLCANO, "g1", minMember=7)
    await bench.shows({(VOLCANO, "g1"): 7})


async def test_a_group_whose_last_news_was_missed_is_gone_with_its_definition(
    server: FaultyServer, watch: Watch
) -> None:
    define(server.api, VOLCANO)
    add_group(server.api, VOLCANO, "g1", minMember=2)
    bench = watch()
    await bench.ready()
    for follower in bench.watches._optional._followers.values():
        follower.feed._reflector._decoded = lambda _: iter(())  # type: ignore[method-assign,assignment]
    undefine(server.api, VOLCANO)
    await bench.shows({})


async def test_nothing_is_said_about_kinds_that_are_not_there(
    server: FaultyServer, watch: Watch, said: CapturingLogger
) -> None:
    define(server.api, COSCHEDULING)
    server.fault = answers("/apis/scheduling.x-k8s.io/v1alpha1/podgroups", 404)  # the group has other kinds as well
    bench = watch()
    await bench.ready()
    await asyncio.sleep(0.3)
    assert warnings(said) == []
    assert bench.groups() == {}


async def test_an_api_server_that_lags_behind_takes_no_group_away(server: FaultyServer, watch: Watch) -> None:
    define(server.api, VOLCANO)
    add_group(server.api, VOLCANO, "g1", minMember=2)
    bench = watch()
    await bench.ready()
    server.fault = answers("/apis/scheduling.volcano.sh/v1beta1/podgroups", 404, times=1)
    server.drop_watches()
    await until(lambda: bench.listed(VOLCANO) == 2, "listed again")
    assert not [event for event in bench.told if isinstance(event, GroupGone)]
    server.fault = answers("/apis/scheduling.volcano.sh/v1beta1/podgroups", 404)
    server.drop_watches()
    await bench.shows({})


async def test_a_discovery_that_lacks_a_kind_for_a_while_takes_no_group_away(
    server: FaultyServer, watch: Watch
) -> None:
    define(server.api, VOLCANO)
    add_group(server.api, VOLCANO, "g1", minMember=2)
    bench = watch()
    await bench.ready()
    looks = 0

    async def incomplete(request: web.BaseRequest) -> web.StreamResponse | None:
        nonlocal looks
        if request.path != "/apis":
            return None
        looks += 1
        return web.json_response({"groups": []})

    server.fault = incomplete
    await until(lambda: looks >= 3, "looked again and again")
    server.fault = None
    add_group(server.api, VOLCANO, "g2", minMember=5)
    await bench.shows({(VOLCANO, "g1"): 2, (VOLCANO, "g2"): 5})
    await asyncio.sleep(0.5)
    assert not [event for event in bench.told if isinstance(event, GroupGone)]


async def test_groups_that_may_not_be_read_are_done_without_after_one_warning(
    server: FaultyServer, watch: Watch, said: CapturingLogger
) -> None:
    define(server.api, VOLCANO)
    add_group(server.api, VOLCANO, "g1", minMember=2)
    server.fault = answers("/apis/scheduling.volcano.sh/v1beta1/podgroups", 403)
    bench = watch()
    await bench.ready()
    await asyncio.sleep(0.3)
    assert warnings(said) == [("kind_not_read", "PodGroup scheduling.volcano.sh/v1beta1")]
    server.fault = None
    await bench.shows({(VOLCANO, "g1"): 2})


async def test_a_kind_that_cannot_be_listed_delays_the_start_for_a_short_time(
    server: FaultyServer, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "PATIENCE_S", 0.2)
    define(server.api, VOLCANO)
    server.fault = answers("/apis/scheduling.volcano.sh/v1beta1/podgroups", 500)
    bench = watch()
    await bench.ready()
    await asyncio.wait_for(bench.watches.catch_up(), 10)


async def test_where_discovery_is_closed_the_lists_tell_what_there_is(server: FaultyServer, watch: Watch) -> None:
    define(server.api, OWN)
    add_group(server.api, OWN, "g1", minMember=2)
    server.fault = answers("/apis", 403)
    bench = watch()
    await bench.ready()
    assert bench.groups() == {(OWN, "g1"): 2}


async def test_a_discovery_that_fails_is_waited_for(server: FaultyServer, watch: Watch) -> None:
    define(server.api, OWN)
    add_group(server.api, OWN, "g1", minMember=2)
    server.fault = answers("/apis", 503, times=3)
    bench = watch()
    await bench.ready()
    assert bench.groups() == {(OWN, "g1"): 2}


async def test_an_unreadable_group_is_reported_to_its_owner_and_counted(server: FaultyServer, watch: Watch) -> None:
    define(server.api, VOLCANO)
    made = add_group(server.api, VOLCANO, "odd", minMember="four")
    add_group(server.api, VOLCANO, "g1", minMember=2)
    bench = watch()
    await bench.ready()
    assert bench.groups() == {(VOLCANO, "g1"): 2}
    ((about, reason),) = bench.complaints
    assert about == Reference(VOLCANO, "PodGroup", "odd", "default", made["metadata"]["uid"])
    assert reason.code == "GroupUnreadable"
    assert "minMember" in str(reason)
    assert bench.metrics.errors["undecodable"] == 1


async def test_a_takeover_lists_groups_that_no_watch_showed(server: FaultyServer, watch: Watch) -> None:
    define(server.api, VOLCANO)
    bench = watch()
    await bench.ready()
    for follower in bench.watches._optional._followers.values():
        follower.feed._reflector._decoded = lambda _: iter(())  # type: ignore[method-assign,assignment]
    add_group(server.api, VOLCANO, "g1", minMember=2)
    define(server.api, OWN)
    add_group(server.api, OWN, "g2", minMember=3)
    await asyncio.wait_for(bench.watches.catch_up(), 10)
    assert bench.groups() == {(VOLCANO, "g1"): 2, (OWN, "g2"): 3}


def test_of_an_api_group_the_first_version_served_is_read() -> None:
    both = frozenset({"scheduling.k8s.io/v1alpha2", "scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1"})
    known = [kind for kind in kinds.optional(lambda *_: None) if kind.kind == "PodGroup"]
    assert [kind.api_version for kind in watches.served(known, both)] == ["scheduling.k8s.io/v1beta1"]
    assert watches.served(known, frozenset({"v1", "apps/v1"})) == []
