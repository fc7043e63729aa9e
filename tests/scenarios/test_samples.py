"""All samples at once on the embedded cluster: they run as they are, and do not get in each other's way."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from extender.sim.apiserver.errors import ApiError
from extender.sim.kubelet.status import NodeSpec
from tests.scenarios import elastic_stories, embedded, podgroups
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.world import Object
from tests.unit.docs import crds

FOLDER = Path(__file__).parents[2] / "manifests" / "samples"
SAMPLES = sorted(FOLDER.rglob("*.yaml"))
FOREIGN = [path for path in SAMPLES if path.parent != FOLDER and path.stem != "01-annotations"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[EmbeddedWorld]:
    nodes = [NodeSpec(name=f"node-{i}", profile="dgx-a100-80g") for i in range(3)]
    async with embedded.a_cluster(*nodes, also=("volcano", "kube-batch")) as cluster:
        world = EmbeddedWorld(cluster)
        await world.define(*(made for made in crds.definitions() if made["spec"]["names"]["kind"] != "PodGroup"))
        yield world


def objects(path: Path) -> list[Object]:
    return list(yaml.safe_load_all(path.read_text()))


async def test_a_sample_of_an_operator_names_the_definition_without_which_it_is_refused(world: EmbeddedWorld) -> None:
    readme = (FOLDER / "README.md").read_text()
    for path in FOREIGN:
        first = objects(path)[0]
        with pytest.raises(ApiError, match="no matches for kind"):
            await world.create(first)
        group, kind = first["apiVersion"].partition("/")[0], f"{first['kind'].lower()}s"
        top = " ".join(line.removeprefix("# ") for line in re.findall(r"^# .*", path.read_text(), re.MULTILINE))
        assert kind in top
        assert group in top
        (row,) = re.findall(rf".*\({path.relative_to(FOLDER)}\).*", readme)
        assert f"`{kind}.{group}`" in row


async def test_all_samples_run_side_by_side(world: EmbeddedWorld) -> None:
    await world.define(*podgroups.definitions(), *elastic_stories.DEFINITIONS)
    submitted = [one for path in SAMPLES for one in objects(path)]
    for one in submitted:
        await world.create(one)
    expected = sum(one["spec"].get("parallelism", 1) for one in submitted if one["kind"] in ("Pod", "Job"))

    async def all_run() -> bool:
        pods = await world.pods()
        return len(pods) == expected and all(pod["status"]["phase"] == "Running" for pod in pods)

    await world.wait(all_run, 60, "the pods of all samples run")
    assert expected > len(SAMPLES)
