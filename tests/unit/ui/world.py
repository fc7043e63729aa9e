"""A made-up cluster that shows everything that the page can draw, as a source of which tests decide what it has."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import msgspec

from extender.ui.sources import Rest
from extender.wire import answers, listings, page, visibility
from protos.contract.queue import GPUS
from protos.kube import errors

HOSTILE = "<img src=x onerror=alert(1)>"
GIB = 1024
MODELS = {"NVIDIA H100 80GB HBM3": 80, "NVIDIA A100-SXM4-40GB": 40, "NVIDIA L4": 24}
MANY = 5000


def holder(pod: str, gib: int = 0, **fields: bool) -> page.Holder:
    queue = "production" if pod.startswith("prod/") else "llm"
    return page.Holder(pod=pod, memory=gib * GIB, queue=queue, **fields)


def gpu(index: int, model: str, state: page.GpuState, *holders: page.Holder, why: str | None = None) -> page.Gpu:
    memory = MODELS[model] * GIB
    used = memory if any(each.whole for each in holders) else sum(each.memory for each in holders)
    return page.Gpu(
        id=str(index), model=model, memory=memory, used=used, slices=100, state=state, why=why, holders=holders
    )


def training(name: str, model: str, free: int) -> page.Node:
    """A node of 8 GPUs of which all but the last have a whole pod."""
    gpus = (
        gpu(i, model, "free") if i >= 8 - free else gpu(i, model, "whole", holder(f"research/train-{i}", whole=True))
        for i in range(8)
    )
    return page.Node(name=name, state="ok", model=model, gpus=tuple(gpus))


def serving(name: str, model: str, parts: int) -> page.Node:
    """A node of 4 GPUs with parts."""
    gib = MODELS[model] // 4
    gpus = tuple(
        gpu(i, model, "part", *(holder(f"prod/api-{i}-{j}", gib) for j in range(1 + (i + parts) % 4))) for i in range(4)
    )
    return page.Node(name=name, state="ok", model=model, gpus=gpus)


def instances(name: str, model: str) -> page.Node:
    """A node of 4 GPUs in MIG mode."""
    found: list[page.Gpu] = []
    for i in range(4):
        for j in range(7):
            pods = () if (i + j) % 3 == 0 else (holder(f"research/notebook-{i}{j}", 10),)
            state: page.GpuState = "mig" if pods else "free"
            found.append(
                page.Gpu(
                    id=f"{i}:{j}", model=model, memory=10 * GIB, used=10 * GIB * len(pods), slices=100, state=state,
                    profile="1g.10gb", holders=pods,
                )
            )  # fmt: skip
    return page.Node(name=name, state="ok", model=model, gpus=tuple(found))


def troubled(name: str, model: str) -> page.Node:
    gpus = (
        gpu(0, model, "sick", holder("prod/api-lost", 10), why="is sick: XID 79"),
        gpu(1, model, "cordoned"),
        gpu(2, model, "kept", holder("research/llm-worker-7", 40, kept=True)),
        gpu(3, model, "part", holder(f"prod/{HOSTILE}", 10), page.Holder()),
    )
    return page.Node(name=name, state="not-ready", why="the kubelet does not answer", model=model, gpus=gpus)


def nodes() -> list[page.Node]:
    h100, a100, l4 = MODELS
    return [
        *(training(f"h100-{i}", h100, free) for i, free in enumerate((0, 0, 2, 0, 5, 1))),
        *(instances(f"a100-mig-{i}", a100) for i in range(2)),
        *(serving(f"l4-{i}", l4, i) for i in range(7)),
        troubled("a100-9", a100),
    ]


def queue(name: str, depth: int, parent: str, *amounts: float, waiting: int = 0) -> listings.Queue:
    quota, used, demand, share = ({GPUS: str(amount)} for amount in amounts)
    return listings.Queue(
        name=name, depth=depth, parent=parent, deserved=quota, allocated=used, requested=demand, fair_share=share,
        waiting=waiting, running=12,
    )  # fmt: skip


QUEUES = (
    queue("company", 0, "", 56, 54, 66, 56, waiting=3),
    queue("production", 1, "company", 24, 15, 15, 15),
    queue("research", 1, "company", 32, 39, 51, 41, waiting=3),
    queue("llm", 2, "research", 20, 31, 43, 33, waiting=2),
    queue("vision", 2, "research", 12, 8, 8, 8, waiting=1),
)
GANGS = (
    visibility.GangStatus(
        namespace="research", name="llm", phase="Running", since=260, min_member=8, present=8, bound=8, queue="llm"
    ),
    visibility.GangStatus(
        namespace="research", name="llm-next", phase="Waiting", since=95, min_member=12, present=12, queue="llm",
        sentence="not enough whole GPUs are free for all members", numbers="12 needed, 8 free",
        earliest=answers.Earliest(seconds=750, who="gang research/llm-next"),
    ),
)  # fmt: skip
PODS = (
    answers.WaitingPod(
        namespace="research", name="segment-0", uid="1", queue="vision", since=41,
        sentence="no GPU has enough free memory", numbers="60 GiB needed, 40 GiB at most are free",
        earliest=answers.Earliest(seconds=210),
    ),
    answers.WaitingPod(
        namespace="research", name="llm-next-0", uid="2", queue="llm", since=95, group="research/llm-next",
        sentence="its gang waits until all members can start",
    ),
    answers.WaitingPod(namespace="prod", name=HOSTILE, uid="3", since=600, sentence=HOSTILE),
)  # fmt: skip


class World:
    """The source."""

    def __init__(self) -> None:
        self.shown = nodes()
        self.asked: list[dict[str, Any]] = []
        """What-ifs."""
        self.rested = Rest(QUEUES, GANGS, PODS)
        self.explained: list[str] = []

    def grow(self) -> None:
        """Become a cluster of many nodes."""
        model = "NVIDIA H100 80GB HBM3"
        self.shown = [training(f"node-{i}", model, i % 8) for i in range(MANY)]

    async def nodes(self) -> Sequence[page.Node]:
        return list(self.shown)

    async def node(self, name: str) -> answers.NodePage:
        pairs = combinations(range(8), 2) if name.startswith("h100") else ()
        links = (answers.Link(gpus=(a, b), kind="NV18" if a // 4 == b // 4 else "SYS") for a, b in pairs)
        return answers.NodePage(name=name, links=tuple(links))

    async def rest(self, namespaces: Sequence[str]) -> Rest:
        return self.rested

    async def what_if(self, namespace: str, question: bytes) -> bytes:
        self.asked.append(msgspec.json.decode(question))
        verdict = {"state": "later", "headline": "would start in about 45 min on h100-2", "advice": "submit it"}
        workload = {
            "kind": "pod", "namespace": namespace, "name": "what-if", "verdict": verdict, "after": f"prod/{HOSTILE}",
            "sentence": "no node with 2 whole GPUs free",
            "pods": [{"name": "what-if", "node": "h100-2", "gpus": [1, 2]}],
        }  # fmt: skip
        now = {"verdict": {"state": "now", "headline": "would start now"}, "workloads": [workload]}
        return msgspec.json.encode({"verdict": verdict, "workloads": [workload], "further": now})

    async def explain(self, namespace: str, name: str) -> bytes:
        self.explained.append(f"{namespace}/{name}")
        if name == "gone":
            raise errors.NotFound("GET gpupods", message=f"{name} not found")
        pod = answers.Pod(
            namespace=namespace, name=name, uid="1", queue="vision", place=1, in_line=3, since=41,
            sentence="no GPU has enough free memory", numbers="60 GiB needed, 40 GiB at most are free",
            verdict=answers.Verdict(state="waiting", headline="is pending", advice="request at most 40 GiB"),
            reservation=answers.Reservation(node="h100-2", gpus=(1,), seconds=60),
            earliest=answers.Earliest(seconds=180, after="research/train-3", nodes=("h100-2",)),
            nodes=(answers.NodeCount(why="no GPU with 60 GiB free", nodes=9), answers.NodeCount(why="", nodes=1)),
        )  # fmt: skip
        return msgspec.json.encode(pod)
