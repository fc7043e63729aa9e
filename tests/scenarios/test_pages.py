"""The commands of the pages about one feature each, typed at an embedded cluster as the pages show them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from extender.sim.kubelet.status import NodeSpec
from protos.contract import names
from tests.scenarios import elastic_stories, embedded, gangs
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.jobs.submitted import gang, submit
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.stories import event, mem, on, phase, refused_with, run, until
from tests.scenarios.typist import Typist
from tests.scenarios.world import Object
from tests.unit.docs import crds
from tests.unit.docs.pages import blocks, page
from tests.unit.docs.typed import steps

pytestmark = pytest.mark.asyncio(loop_scope="module")
ONE, TWO = "gpu-node-1", "gpu-node-2"
NAMESPACES = ("gpus", "monitoring", "research", "team-a")
ARGS = ["--scheduler-names=gangshare", "--min-runtime=1"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[EmbeddedWorld]:
    nodes = [NodeSpec(name=name, profile="dgx-a100-80g") for name in (ONE, TWO)]
    async with embedded.a_cluster(*nodes, extender_args=ARGS, job_backoff_seconds=0.5) as cluster:
        world = EmbeddedWorld(cluster)
        await world.define(*crds.definitions(), *elastic_stories.DEFINITIONS)
        for name in NAMESPACES:
            await world.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await world.wait(world.knows_all_gpus, 60, "the extender knows all GPUs")
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: EmbeddedWorld) -> AsyncIterator[EmbeddedWorld]:
    yield running
    await gangs.tidy(running, ("default", "research", "team-a"))


@pytest.fixture
def typist(world: EmbeddedWorld, tmp_path: Path) -> Typist:
    return Typist.at(world.cluster, tmp_path, NODE=ONE)


@pytest_asyncio.fixture(loop_scope="module")
async def research(world: EmbeddedWorld, typist: Typist) -> AsyncIterator[None]:
    """The queue of the pages, known to the extender."""
    await typist.type("gangshare queue create research --deserved gpus=4", "created")
    await typist.type("gangshare queues", "research")
    yield
    await typist.type("kubectl delete queue research")


def nowhere(name: str, **more: object) -> Object:
    """A pod that waits for a node with a label that none has."""
    return a_pod(name, a_container(limits=mem(4)), **{"nodeSelector": {"pool": "none"}, **more})  # type: ignore[arg-type]


async def pending(world: EmbeddedWorld, namespace: str = "default") -> None:
    """A single pod and a gang that wait."""
    await world.create_pod(nowhere("train-0"))
    members = [nowhere(f"big-{number}") for number in range(2)]
    await submit(world, gangs.in_namespace(gang("big", members), namespace))


async def test_a_sample(typist: Typist) -> None:
    await typist.follow("manifests/samples/README.md", "Samples", "created", "Running", "GPU-", "deleted")


async def test_look_at_a_cluster(typist: Typist, world: EmbeddedWorld) -> None:
    await run(world, a_pod("runs", a_container(limits={names.WHOLE_GPU: 2}), **on(ONE)))
    await world.create_pod(a_pod("waits", a_container(limits={names.WHOLE_GPU: 8}), **on(ONE)))
    typist.words |= {"train-worker-1-n4lqt": "runs", "openb-pod-0249": "waits"}
    await refused_with(world, "waits")
    await typist.follow("docs/usage.md", "Look at a cluster", "16 GPUs", "SCORE", "")


async def test_a_gpu_is_cordoned_and_uncordoned(typist: Typist) -> None:
    cordon, uncordon = steps("docs/operations.md", "Cordon a GPU")
    await typist.type(cordon, "annotated")
    assert "2 not offered" in await typist.type("gangshare top", "2 not offered")
    await typist.type(uncordon, "annotated")
    await typist.type("gangshare top", "0 not offered")


async def test_a_gate_is_removed_by_hand(typist: Typist, world: EmbeddedWorld) -> None:
    gates = [{"name": names.PLAN_GATE}, {"name": "example.com/quota"}]
    await world.create_pod(a_pod("gated", a_container(limits=mem(4)), schedulingGates=gates))
    typist.words["NAME"] = "gated"
    await typist.follow("docs/troubleshooting.md", "A gate stays", "patched")
    pod = await world.pod("default", "gated")
    assert pod
    assert pod["spec"]["schedulingGates"] == gates[1:]


async def test_tags_for_autoscalers(typist: Typist) -> None:
    expected = "resources/gangshare.io/gpu-mem=632", "resources_gangshare.io_gpu-mem=632", "kind: NodeOverlay"
    await typist.follow("docs/autoscalers.md", "Scale from zero", *expected)


async def test_labels_and_taints(typist: Typist) -> None:
    await typist.follow("docs/nvidia-plugin.md", "Switch", "labeled")
    await typist.follow("docs/operations.md", "Network policies", "labeled")
    await typist.follow("docs/helm.md", "Another namespace", "", "labeled")
    await typist.follow("manifests/README.md", "Keep other schedulers off the GPU nodes", "tainted")
    await typist.type(f"kubectl taint node {ONE} nvidia.com/gpu-", "untainted")


async def test_a_namespace_demands_isolation(typist: Typist, world: EmbeddedWorld) -> None:
    await typist.follow("docs/isolation.md", "What a pod demands", "labeled")
    pod = a_pod("demands", a_container(limits=mem(4)))
    await world.create_pod({**pod, "metadata": {**pod["metadata"], "namespace": "research"}})
    await typist.type("gangshare explain pod demands -n research", "NoIsolation")


async def test_a_queue_is_stopped_and_resumed(typist: Typist, research: None) -> None:
    stop, resume = steps("docs/queues.md", "Stop a queue")
    await typist.type(stop, "is closed")
    await typist.type("gangshare queues", "closed")
    await typist.type(resume, "is open")


async def test_pending_workloads_move_to_a_queue(typist: Typist, world: EmbeddedWorld, research: None) -> None:
    await pending(world)
    await typist.follow("docs/queues.md", "Move a pending workload", "research", "research")
    await typist.type("gangshare explain pod big-0", "queue research")


async def test_the_commands_of_queues(typist: Typist, world: EmbeddedWorld, research: None) -> None:
    await pending(world, "team-a")
    expected = "created", "is closed", "is open", "vision", "vision"
    await typist.follow("docs/usage.md", "queue, move", *expected)
    await typist.type("kubectl delete queue vision")


async def test_a_preemption(typist: Typist, world: EmbeddedWorld) -> None:
    (urgent,) = [yaml.safe_load(block.text) for block in blocks(page("docs/preemption.md"), "yaml")]
    await world.create(urgent)
    for number, node in enumerate((ONE, TWO)):
        await run(world, a_pod(f"low-{number}", a_container(limits={names.WHOLE_GPU: 8}), **on(node)))
    await world.create_pod(a_pod("now", a_container(limits={names.WHOLE_GPU: 1}), priorityClassName="urgent"))
    await event(world, "now", "Preempting")
    typist.words["NAME"] = "now"
    await typist.follow("docs/preemption.md", "Preemption", "runs on", "preempts this pod")


async def test_defragmentation(typist: Typist, world: EmbeddedWorld) -> None:
    await run(world, a_pod("whole", a_container(limits={names.WHOLE_GPU: 8}), **on(TWO)))
    template = a_pod("any", a_container(limits=mem(6)), annotations={names.RESTARTABLE: "true"})
    metadata = {"name": "web", "namespace": "default"}
    job = {"metadata": metadata, "spec": {"parallelism": 1, "completions": 1, "template": template}}
    await world.create({"apiVersion": "batch/v1", "kind": "Job", **job})
    await typist.type("kubectl get pods -o wide", ONE)
    await world.delete_pod("default", "whole", 0)
    await run(world, a_pod("web-5", a_container(limits={names.WHOLE_GPU: 7}), **on(TWO)))
    await world.create_pod(a_pod("train", a_container(limits={names.WHOLE_GPU: 8})))
    await refused_with(world, "train")
    moves = "1 move makes room for default/train"
    await typist.follow("docs/defragmentation.md", "Defragmentation", moves, moves, "")
    await until(world, lambda: is_running(world, "train"), "it runs")


async def is_running(world: EmbeddedWorld, pod: str) -> bool:
    return await phase(world, pod) == "Running"


async def test_an_elastic_job(typist: Typist) -> None:
    await typist.follow("docs/elastic.md", "ET-operator's TrainingJobs", "created")
    await typist.follow("docs/elastic.md", "Scale in", "")
    await typist.type("kubectl delete trainingjobs --all")


async def test_runbooks_get_another_address(typist: Typist) -> None:
    await typist.follow("docs/dashboards.md", "Alerts", "")
    rules = (typist.folder / "manifests/components/monitoring/rules.yaml").read_text()
    assert "https://wiki.example.com/gangshare" in rules
    assert "https://gangshare.example.com" not in rules


async def test_replays(typist: Typist) -> None:
    """The traces of the pages are those of the tests; one is cut, since it takes long."""
    traces = typist.folder / "tests/data"
    (typist.folder / "nodes.csv").write_text(head(traces / "openb/openb_node_list_gpu_node.csv", 40))
    (typist.folder / "pods.csv").write_text(head(traces / "openb/openb_pod_list_default.csv", 300))
    (typist.folder / "jobs.csv.gz").symlink_to(traces / "jobs/trace3.csv.gz")
    await typist.type("gunzip --stdout jobs.csv.gz > jobs.csv")
    openb, jobs = "allocated at 95: ", "mean JCT"
    await typist.follow("docs/usage.md", "simulate", openb, '"policy": "fgd"', openb, jobs, '"policy": "easy"', jobs)
    assert "<svg" in (typist.folder / "curve.svg").read_text()
    await typist.follow("docs/jobs.md", "Measured", jobs, jobs, '"policy": "gangshare"')


def head(path: Path, lines: int) -> str:
    return "".join(path.read_text().splitlines(keepends=True)[:lines])


async def test_kube_schedulers_configuration(typist: Typist) -> None:
    await typist.follow("docs/usage.md", "scheduler-config", "")
    assert yaml.safe_load((typist.folder / "scheduler.yaml").read_text())["kind"] == "KubeSchedulerConfiguration"
    await typist.follow("docs/mig.md", "kube-scheduler", "nvidia.com/mig-1g.99gb")
