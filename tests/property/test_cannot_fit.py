"""What fits on some node, whatever runs there, is never called too large for the cluster."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from extender.engine.placement.seats import fits
from extender.engine.types.events import NodeGone, NodeSeen
from protos.contract import names
from protos.contract.ask import ContainerAsk, Demand, PodAsk
from protos.contract.selection import Selection
from tests.builders import a_cut_node, a_node
from tests.unit.engine.selections import a_machine
from tests.unit.engine.story import Story

MIG = "nvidia.com/mig-1g.10gb"
SHARED = ContainerAsk(name="held", gpus=1, mem=1, slices=1)


@st.composite
def nodes(draw: st.DrawFn) -> list[Any]:
    found = []
    for number in range(draw(st.integers(1, 4))):
        name = f"n{number}"
        mems = draw(st.lists(st.sampled_from((8, 16, 31)), max_size=4))
        cpu = draw(st.sampled_from(("8", "64")))
        modelled, replicated, is_cut = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
        if mems and is_cut:
            profiles = st.lists(st.sampled_from(("1g.10gb", "2g.20gb")), max_size=3)
            instances = draw(st.dictionaries(st.sampled_from(range(len(mems))), profiles))
            strategy: bool = draw(st.booleans())
            found.append(a_cut_node(name, *mems, instances=instances, single=strategy))
            continue
        if mems and modelled:
            found.append(a_machine(name, draw(st.sampled_from(("T4", "V100"))), *mems))
            continue
        resource = draw(st.sampled_from((names.WHOLE_GPU, MIG)))
        served = {resource: str(draw(st.integers(1, 4)))} if not mems else {}
        fields: dict[str, Any] = {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "110"} | served}
        if mems and replicated:
            fields["replicas"] = {draw(st.sampled_from((names.WHOLE_GPU, names.SHARED_GPU))): draw(st.integers(1, 4))}
        found.append(a_node(name, *mems, **fields))
    return found


CONTAINERS = st.one_of(
    st.builds(
        ContainerAsk,
        name=st.just(""),
        kind=st.sampled_from(("app", "app", "init", "sidecar")),
        gpus=st.integers(1, 4),
        mem=st.sampled_from((0, 4, 8, 16, 31)),
        slices=st.sampled_from((10, 50, 100)),
    ),
    st.builds(
        ContainerAsk,
        name=st.just(""),
        kind=st.sampled_from(("app", "init")),
        gpus=st.integers(1, 5),
        whole=st.just(names.WHOLE_GPU),
    ),
    st.builds(
        ContainerAsk, name=st.just(""), gpus=st.integers(1, 2), whole=st.just(names.SHARED_GPU), shared=st.just(True)
    ),
    st.builds(ContainerAsk, name=st.just(""), gpus=st.integers(1, 3), whole=st.just(MIG), profile=st.just("1g.10gb")),
    st.builds(
        ContainerAsk,
        name=st.just(""),
        gpus=st.integers(1, 2),
        mem=st.sampled_from((4, 9, 16)),
        profile=st.sampled_from(("1g.10gb", "2g.20gb")),
    ),
)
SELECTIONS = st.sampled_from(
    [Selection(), Selection(), Selection(models=("T4",)), Selection(min_mem_mib=9000), Selection(uuids=("GPU-n0-0",))]
)


@st.composite
def asks(draw: st.DrawFn) -> PodAsk:
    containers = draw(st.lists(CONTAINERS, min_size=1, max_size=3))
    named = tuple(msgspec.structs.replace(each, name=f"c{number}") for number, each in enumerate(containers))
    return PodAsk(containers=named, selection=draw(SELECTIONS))


@given(nodes(), st.lists(asks(), min_size=1, max_size=6), st.sets(st.integers(0, 3)), st.sampled_from([0, 8000, 64000]))
def test_what_fits_somewhere_is_never_called_too_large(
    seen: list[Any], every: list[PodAsk], gone: set[int], cpu: int
) -> None:
    story = Story(*seen)
    for number in gone:
        story.tell(NodeGone(f"n{number}"))
    if gone and seen:
        story.tell(NodeSeen(seen[0]))
    cannot_fit = story.engine._components.cannot_fit
    for number, ask in enumerate(every):
        requests = (("cpu", cpu),)
        there = [node for node in story.engine.nodes.values() if fits(ask, node) and node.allocatable["cpu"] >= cpu]
        assert not there or cannot_fit.why(ask, requests) is None
        for node in story.engine.nodes.values():
            if node.books is not None and node.books.gpus:
                uuid = next(iter(node.books.gpus))
                node.books.hold(f"uid-{number}", PodAsk(containers=(SHARED,)), {uuid: Demand(1, 1, False)})
