"""Who is shown what: probes and metrics to everybody, tenants' pods on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender import metrics
from tests.unit.extender_shell import world
from tests.unit.extender_shell.world import World, add_node, add_pod

STRANGER = "127.0.0.2"
"""An address of this machine from which nobody asks who asks on loopback: a mesh's proxy has such a one."""
TENANTS = (
    "/inspect",
    "/inspect/node-a",
    "/queues",
    "/classes",
    "/explain/default/p1",
    "/explain/groups/default/g",
    "/defrag/default/p1",
)


@pytest.fixture
async def stranger() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(local_addr=(STRANGER, 0))
    async with aiohttp.ClientSession(connector=connector) as session:
        yield session


async def told(session: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    async with session.get(url) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize("path", TENANTS)
async def test_strangers_see_no_tenants_pods(cluster: World, stranger: aiohttp.ClientSession, path: str) -> None:
    status, text = await told(stranger, cluster.status + path)
    assert status == 403
    assert text.startswith(f"{path} shows tenants' pods: expected to be asked on loopback (kubectl port-forward)")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example:12346"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
    ],
)
async def test_no_web_page_reads_them_through_a_name_that_it_resolves_to_loopback(
    cluster: World, headers: dict[str, str]
) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{cluster.status}/inspect", headers=headers) as answer:
        assert answer.status == 403
        assert "no web page may ask" in await answer.text()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:9", "[::1]:12346"])
async def test_names_of_loopback_are_good(cluster: World, host: str) -> None:
    named = {"Host": host}
    async with aiohttp.ClientSession() as session, session.get(f"{cluster.status}/inspect", headers=named) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
async def test_probes_are_for_everybody(cluster: World, stranger: aiohttp.ClientSession, path: str) -> None:
    assert await told(stranger, cluster.status + path) == (200, "ok")


async def placed(cluster: World) -> None:
    pod = add_pod(cluster.api, "p1")
    await cluster.filter(pod, ["node-a"])
    assert await cluster.bind(pod, "node-a") == ""


async def test_metrics_for_everybody_name_no_pod(cluster: World, stranger: aiohttp.ClientSession) -> None:
    await placed(cluster)
    status, text = await told(stranger, f"{cluster.status}/metrics")
    assert status == 200
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(families) == {spec.name for spec in metrics.TABLE} - {metrics.INFO.name}
    labels = {label for family in families.values() for sample in family.samples for label in sample.labels}
    assert not labels & {"namespace", "pod", "container", "exported_pod", "exported_namespace"}
    assert "p1" not in text


async def test_whose_pods_are_on_which_gpus_is_open_where_that_is_set(stranger: aiohttp.ClientSession) -> None:
    async with world.world(open_allocations=True) as cluster:
        add_node(cluster.api, "node-a")
        await cluster.ready()
        await placed(cluster)
        assert (
            'gangshare_allocation_info{namespace="default",pod="p1"'
            in (await told(stranger, f"{cluster.status}/metrics"))[1]
        )
        assert (await told(stranger, f"{cluster.status}/inspect"))[0] == 403


@pytest.mark.parametrize(("method", "status"), [("POST", 405), ("DELETE", 405)])
async def test_nothing_is_changed_here(cluster: World, method: str, status: int) -> None:
    async with cluster.session.request(method, f"{cluster.status}/inspect") as answer:
        assert answer.status == status


async def test_who_asks_again_is_let_in_again(cluster: World) -> None:
    """One connection for each question: connections are let in one by one."""
    for path in ("/inspect", "/healthz", "/metrics", "/nothing"):
        async with cluster.session.get(cluster.status + path) as answer:
            assert answer.headers["Connection"] == "close"


async def test_what_is_no_page_is_told(cluster: World) -> None:
    assert await cluster.get("/nothing/here") == (404, "/nothing/here: no such page")


async def test_gpushares_inspect_is_for_loopback_alone(stranger: aiohttp.ClientSession) -> None:
    async with world.world(gpushare=True) as cluster:
        await cluster.ready()
        status, _ = await told(stranger, f"{cluster.verbs}/gpushare-scheduler/inspect")
        assert status == 403
        assert await cluster.get("/gpushare-scheduler/inspect", cluster.verbs) == (200, {"nodes": []})
