"""The measuring process: what it serves, and what becomes of a driver that does not answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from deviceplugin.machine import SourceError
from deviceplugin.usage import run
from deviceplugin.usage.metrics import TABLE
from deviceplugin.usage.processes import Process, Sample
from deviceplugin.usage.run import Meter
from deviceplugin.usage.settings import Settings
from protos.contract import inventory
from protos.contract.bounds import MEASURED
from protos.contract.measured import Page
from protos.contract.shared_settings import SettingsError
from protos.kube import errors
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials
from tests.unit.deviceplugin.builders import a_container, a_pod, placed
from tests.unit.deviceplugin.usage import made

GIB = 2**30


class Source:
    """A driver that tells these samples, or this error."""

    def __init__(self, *samples: Sample) -> None:
        self.samples, self.error = samples, ""
        self.waits = threading.Event()
        self.waits.set()

    def read(self) -> tuple[Sample, ...]:
        self.waits.wait(30)
        if self.error:
            raise SourceError(self.error)
        return self.samples

    def close(self) -> None:
        return


USED = Sample("GPU-0", (Process(7, 5 * GIB), Process(8, GIB), Process(9, GIB)), {7: 0.5})


@pytest.fixture
def source() -> Source:
    return Source(USED, Sample("GPU-1", trouble="NVML does not tell its processes (GPU is lost)"))


@pytest.fixture
async def meter(source: Source, tmp_path: Path) -> Meter:
    proc, root = tmp_path / "proc", tmp_path / "cgroup"
    made.in_proc(proc, 7, made.path_of(made.group(1)))
    made.in_proc(proc, 8, "/system.slice/x.service")
    root.mkdir()
    (root / "cgroup.controllers").write_text("memory\n")
    client = ApiClient(Credentials("http://127.0.0.1:1"))
    meter = Meter(Settings(node_name="n", port=0), source, client, proc, root)
    meter.pods._read(made_inventory())
    pod = made.a_pod(a_pod("p", a_container(mem=4), annotations=placed(main=(0,)), uid=made.uid(1)),
                     ids={"main": made.container_id(1)})  # fmt: skip
    meter.pods._pods["default", "p"] = pod
    return meter


def made_inventory() -> str:
    return inventory.encode(made.an_inventory(16, 16))


def page(meter: Meter) -> Page:
    return msgspec.json.decode(meter._page(), type=Page)


def series(text: str) -> dict[str, list[tuple[Mapping[str, str], float]]]:
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(text)
    }


async def test_the_page_tells_containers_and_what_could_not_be_measured(meter: Meter) -> None:
    await meter.look()
    shown = page(meter)
    assert shown.troubles == ("GPU GPU-1: NVML does not tell its processes (GPU is lost)",)
    (use, outside) = shown.uses
    assert (use.pod, use.container, use.used, use.promised, use.sm) == ("p", "main", 5 * GIB, 4 * GIB, 0.5)
    assert (outside.pod, outside.container, outside.used) == ("", "-", GIB)  # pid 9 has ended


async def test_metrics_and_page_are_served_and_nothing_else(meter: Meter, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("watch_pods", "watch_node"):
        monkeypatch.setattr(meter.pods, name, asyncio.Event().wait)
    meter.pods.listed.set()
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(meter.run(stop))
        while not meter._uses:  # noqa: ASYNC110  # the process tells nobody
            await asyncio.sleep(0.01)
        found: dict[str, Any] = {}
        async with aiohttp.ClientSession(f"http://127.0.0.1:{meter.port}") as session:
            for path in ("/metrics", "/usage", "/else"):
                async with session.get(path) as answer:
                    found[path] = (answer.status, await answer.text())
        stop.set()
    assert [status for status, _ in found.values()] == [200, 200, 404]
    assert msgspec.json.decode(found["/usage"][1], type=Page).uses
    families = series(found["/metrics"][1])
    assert set(families) == {spec.name for spec in TABLE}
    for spec in TABLE:
        assert all(set(labels) == set(spec.labels) for labels, _ in families[spec.name])
    kinds = {family.name: family.type for family in text_string_to_metric_families(found["/metrics"][1])}
    assert kinds == {spec.name: spec.kind for spec in TABLE}
    ((labels, value),) = families["gangshare_container_gpu_memory_promised_bytes"]
    assert value == 4 * GIB
    assert labels == {
        "node": "n", "namespace": "default", "pod": "p", "container": "main", "UUID": "GPU-0", "gpu": "0", "model": "",
        "queue": "", "level": "memory promised, compute promised",
    }  # fmt: skip
    readable = {labels["UUID"]: value for labels, value in families["gangshare_usage_gpu_readable"]}
    assert readable == {"GPU-0": 1, "GPU-1": 0}


async def test_the_series_of_a_pod_end_with_it(meter: Meter) -> None:
    await meter.look()
    meter.pods._forget(("default", "p"))
    await meter.look()
    assert [use.container for use in page(meter).uses] == ["-"]
    assert [(owner.namespace, time.promised) for owner, time in meter._measured().times.items()] == [("default", 0.0)]


async def test_without_a_driver_promises_stay_and_use_is_unknown(meter: Meter, source: Source) -> None:
    source.error = "no GPU can be read: the NVIDIA driver is not loaded"
    await meter.look()
    assert page(meter).troubles == (source.error,)
    (use,) = page(meter).uses
    assert (use.used, use.promised, use.idle) == (None, 4 * GIB, None)


async def test_a_driver_that_hangs_is_told_and_not_asked_twice(
    meter: Meter, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "HANG_S", 0.01)
    await meter.look()
    source.waits.clear()
    looking = asyncio.create_task(meter.look())
    while page(meter).troubles != ("the driver gives no answer in 0.01 s",):  # noqa: ASYNC110  # as above
        await asyncio.sleep(0.01)
    assert page(meter).uses[0].used is None
    source.waits.set()
    await looking
    assert page(meter).uses[0].used == 5 * GIB


@pytest.mark.parametrize(
    ("settings", "reasons"),
    [({}, []), ({"overuse_events": True}, ["GpuMemoryOveruse"]), ({"idle_events_s": 1800.0}, ["GpuIdle"])],
)
async def test_events_are_posted_if_they_are_asked_for(settings: dict[str, Any], reasons: list[str]) -> None:
    made_meter = Meter(
        Settings(node_name="n", **settings), Source(), ApiClient(Credentials("http://x")), Path(), Path()
    )
    assert [notice.reason for notice in made_meter._notices._told] == reasons


async def test_while_the_api_server_is_away_the_last_promises_are_shown_and_told_to_be_old(meter: Meter) -> None:
    meter.pods._of_pods.trouble = errors.Unavailable("WATCH /api/v1/pods", message="connection refused")
    await meter.look()
    assert "may be old" in page(meter).troubles[0]
    assert page(meter).uses[0].promised == 4 * GIB


async def test_without_an_inventory_or_cgroup_v2_the_page_says_so(meter: Meter, tmp_path: Path) -> None:
    (tmp_path / "cgroup" / "cgroup.controllers").unlink()
    meter.pods._read("{")
    await meter.look()
    assert page(meter).troubles[:2] == (run.NO_CGROUPS, run.NO_INVENTORY)
    assert page(meter).uses == ()


async def test_more_rows_than_its_bound_are_cut_and_told(meter: Meter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MEASURED", msgspec.structs.replace(MEASURED, most=1))
    await meter.look()
    assert len(page(meter).uses) == 1
    assert page(meter).troubles[-1].startswith("containers of a node whose use of GPUs is shown: 2")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"node_name": ""}, "--node-name"),
        ({"period_s": 0.5}, "--period is 0.5"),
        ({"port": 70000}, "--port is 70000"),
        ({"idle_events_s": -1}, "--idle-events is -1"),
    ],
)
def test_a_wrong_setting_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Settings(**{"node_name": "n", **given})
