"""How MIG instances are shown: to users of the commands, of the aggregated API, and as metrics."""

from __future__ import annotations

import msgspec
import pytest

from extender.cli import console, explain_places, top
from extender.cli.top import View as Looks
from extender.server import exposition, places
from extender.server.visibility import items
from extender.server.visibility.items import Sight, View
from extender.server.visibility.resources import BY_PLURAL
from extender.wire.answers import GpuPage, Inspection
from extender.wire.visibility import GpuStatus
from tests.builders import a_container, a_cut_node, a_node, a_pod
from tests.unit.engine.gang_story import GangStory

SEVEN = ["1g.10gb"] * 7


@pytest.fixture
def story() -> GangStory:
    """A node with 56 instances, three of which are held, and one with a GPU."""
    made = GangStory(a_cut_node("cut", *[79] * 8, instances=dict.fromkeys(range(8), SEVEN)), a_node("plain", 16))
    for number in range(3):
        limits = {"nvidia.com/mig-1g.10gb": "1"}
        made.create(a_pod(f"p{number}", containers=[a_container("main", limits=limits)]))
        assert made.come(f"p{number}") == ["flying"]
        made.land()
    return made


def shown(story: GangStory, **view: object) -> list[str]:
    nodes = tuple(places.page(story.engine, state) for state in story.engine.nodes.values())
    looks = Looks()._replace(**view)  # type: ignore[arg-type]
    return console.page(*top.render(Inspection(nodes=nodes), looks)).splitlines()


def test_top_has_one_row_for_a_node_with_56_instances(story: GangStory) -> None:
    page = shown(story)
    assert page[0] == (
        "2 nodes, 9 GPUs: 1 wholly free, 0 in use as a whole, 0 shared, 8 not offered; 53 of 56 MIG instances free"
    )
    assert page[1].startswith("memory: 493 of 520 GiB free")
    heads, cut, plain = [row.split() for row in page[page.index("") + 1 :][:3]]
    assert heads[:6] == ["NODE", "MODEL", "GPUS", "FREE", "MIG", "FREE"]
    assert cut[:5] == ["cut", "A100", "8", "0", "53/56"]
    assert plain[:5] == ["plain", "T4", "1", "1", "-"]


def test_idle_instances_of_a_gpu_share_a_row(story: GangStory) -> None:
    page = shown(story, by="gpu")
    rows = [row.split() for row in page[page.index("") + 2 :]]
    assert len(rows) == 8 + 3 + 8 + 1
    held = [row for row in rows if row[0] in ("0:0", "0:1", "0:2")]
    assert [row[1:3] for row in held] == [["1g.10gb", "ok"]] * 3
    assert all("whole" in row for row in held)
    assert [row[:3] for row in rows if row[0] == "0:3"] == [["0:3", "1g.10gb", "×4"]]
    assert [row[:3] for row in rows if row[0] == "7:0"] == [["7:0", "1g.10gb", "×7"]]
    assert [row[0] for row in rows if row[0] != "cut"][:5] == ["0:0", "0:1", "0:2", "0:3", "1"]


def page_of(story: GangStory, uuid: str) -> GpuPage:
    pieces = b"".join(places.gpu(story.engine, uuid))
    return msgspec.json.decode(pieces, type=GpuPage)


def test_an_instance_is_explained_with_its_profile_and_its_isolation(story: GangStory) -> None:
    lines = console.page(*explain_places.gpu(page_of(story, "MIG-GPU-cut-0-0"))).splitlines()
    assert lines[0].startswith("MIG instance 0:0 of cut")
    assert "  MIG profile: 1g.10gb" in lines
    assert "  isolation: instance (mig)" in lines
    lines = console.page(*explain_places.gpu(page_of(story, "GPU-plain-0"))).splitlines()
    assert lines[0].startswith("GPU 0 of plain")
    assert not any("isolation" in line for line in lines)


def test_the_node_counts_its_instances(story: GangStory) -> None:
    page = places.page(story.engine, story.engine.nodes["cut"])
    assert page.verdict.headline == "takes new pods: 0 of 8 GPUs wholly free, 53 of 56 MIG instances free"
    lines = console.page(*explain_places.node(page)).splitlines()
    assert "GPU 7:6: MIG-GPU-cut-7-6" in lines


def test_the_aggregated_api_names_instances_by_gpu_and_place(story: GangStory) -> None:
    view = View(story.engine, story.now, Sight(["default"]))
    (found,) = [item for item in items.gpu(view, "", "cut-3.1") if item is not None]
    cells = {column.name: column.cell(found.status) for column in BY_PLURAL["gpus"].columns}
    assert (cells["Model"], cells["Slices"], cells["UUID"]) == ("A100 1g.10gb", "0/14", "MIG-GPU-cut-3-1")
    assert isinstance(found.status, GpuStatus)
    assert found.status.isolation == "instance (mig)"
    (pod,) = [item for item in items.pod(view, "default", "p2") if item is not None]
    assert {column.name: column.cell(pod.status) for column in BY_PLURAL["gpupods"].columns}["GPUs"] == "0:2"


def test_metrics_have_instances_with_their_profile_and_no_memory_of_gpus_in_mig_mode(story: GangStory) -> None:
    text = "".join(exposition._pieces(story.engine, True))
    labels = 'node="cut",UUID="MIG-GPU-cut-7-6",gpu="7:6"'
    assert f'gangshare_mig_instance{{{labels},profile="1g.10gb"}} 1' in text
    assert f"gangshare_gpu_memory_bytes{{{labels}}} {9 << 30}" in text
    assert 'gangshare_gpu_memory_bytes{node="cut",UUID="GPU-cut-7"' not in text
    assert 'gangshare_gpu_offered{node="cut",UUID="GPU-cut-7",gpu="7",model="A100"} 0' in text
    assert 'gpu="0:2"} 1' in text
