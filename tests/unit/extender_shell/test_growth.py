"""Waiting effects and remembered Events are bounded, and nothing is kept of deleted objects."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec

from extender.cluster import act
from extender.cluster.act import Actor
from extender.engine.types.effects import GroupStatus, PodRef, Report, Requeue, SetAnnotation
from extender.faults import Faults
from gangfilter.group import GroupKey
from gangfilter.table import Phase
from protos.contract.objects import decode_pod
from protos.contract.reason import Reason
from protos.kube import events
from protos.kube.reflect import Reflector
from tests import growth
from tests.unit.extender_shell.world import acting, add_pod, until, waiting


def a_ref(number: int) -> PodRef:
    return PodRef("default", f"p{number}", f"uid-{number}")


async def test_the_number_of_waiting_effects_is_bounded() -> None:
    given_up: list[str] = []
    actor = Actor(cast(Any, None), cast(Any, None), cast(Any, None), given_up.append, Faults())
    many = act.MOST_ACTS + 100
    for number in range(many):
        actor.submit([Requeue(a_ref(number)), Report(a_ref(number), Reason("NoRoom", "none"))])
    assert len(actor._acts._effects) == act.MOST_ACTS
    assert len(actor._notices._effects) == act.MOST_NOTICES
    assert given_up.count("Requeue") == 100
    assert given_up.count("Report") == many - act.MOST_NOTICES
    for number in range(act.MOST_NOTICES):
        _, effect = await asyncio.wait_for(actor._notices.next(), 1)
        assert isinstance(effect, Report)
        assert effect.pod == a_ref(many - act.MOST_NOTICES + number), "the oldest are given up"
    assert actor._notices._count.locked(), "nobody waits for what was given up"


async def test_nothing_is_kept_of_what_was_written() -> None:
    async with acting() as at_work:
        sizes = []
        for round_ in range(2):
            for number in range(40):
                pod = add_pod(at_work.server.api, f"p{round_}-{number}")
                ref = PodRef("default", pod["metadata"]["name"], pod["metadata"]["uid"])
                key = GroupKey("default", f"g{round_}-{number}")
                status = GroupStatus(
                    key=key, kinds=("gangshare.io/v1alpha1",), phase=Phase.RUNNING, reason=None, min_member=1,
                    present=1, bound=1, succeeded=0, failed=0,
                )  # fmt: skip
                at_work.actor.submit([Requeue(ref), SetAnnotation(ref, "gangshare.io/x", "y", ""), status])
            await until(lambda: waiting(at_work.actor) == 0 and not at_work.actor._acts.in_flight, "all is written")
            await until(lambda: not at_work.actor._resting, "statuses may be written again")
            sizes.append(growth.sizes(actor=at_work.actor))
        assert growth.grown(sizes[0], sizes[1], {}) == {}


async def test_the_number_of_remembered_events_is_bounded() -> None:
    class Told:
        async def post(self, *_: Any, **__: Any) -> bytes:
            return b"{}"

    recorder = events.Recorder(cast(Any, Told()), component="c", instance="i", clock=lambda: 0.0)
    for number in range(events.REMEMBERED + 100):
        await recorder.post(events.Reference("v1", "Pod", f"p{number}", "ns", f"uid-{number}"), "Why", "so")
    assert growth.sizes(recorder=recorder)["recorder._last"] == events.REMEMBERED


def test_a_reflector_knows_the_objects_that_there_are() -> None:
    reflector = Reflector(cast(Any, None), "/api/v1/pods", decode_pod)
    sizes = []
    for round_ in range(2):
        for number in range(200):
            meta = {
                "name": f"p{round_}-{number}",
                "namespace": f"ns-{number}",
                "uid": f"{number}",
                "resourceVersion": "1",
            }
            for change in ("ADDED", "MODIFIED", "DELETED"):
                assert list(reflector._decoded(msgspec.json.encode({"type": change, "object": {"metadata": meta}})))
        sizes.append(growth.sizes(reflector=reflector))
    assert growth.grown(sizes[0], sizes[1], {}) == {}
