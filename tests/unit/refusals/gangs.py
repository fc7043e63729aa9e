"""Why a gang waits, is given up, or does not have all its members."""

from __future__ import annotations

from extender.engine.types.effects import Evict, Report
from extender.engine.types.events import GroupSeen
from protos.contract import names
from protos.contract.reason import Reason
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import KEY, VOLCANO, GangStory, a_declaration, a_member, members, two_nodes
from tests.unit.refusals.case import Case, Section


def _why(world: GangStory) -> Reason:
    reason = world.known().reason
    assert reason is not None
    return reason


def _refused(world: GangStory, name: str) -> Reason:
    reason = world.ask(name).reason
    assert reason is not None
    return reason


def assembling() -> Reason:
    world = two_nodes()
    world.create(*members(2, least=3))
    return _refused(world, "m0")


def unnamed() -> Reason:
    world = two_nodes()
    world.create(a_pod("m0", annotations={names.MIN_MEMBER: "2"}, mem=8))
    return _refused(world, "m0")


def no_room() -> Reason:
    world = two_nodes()
    world.create(a_pod("p", mem=16))
    world.come("p")
    world.land()
    world.create(*members(4, mem=16))
    return _refused(world, "m0")


def cannot_fit() -> Reason:
    world = two_nodes()
    world.create(*members(2, whole=64, mem=0))
    return _refused(world, "m0")


def mixed_models() -> Reason:
    world = GangStory(a_node("n", 16, 16, 16, 16, models=["A100", "A100", "T4", "T4"]))
    world.create(*members(3, whole=1, mem=0))
    return _refused(world, "m0")


def too_large() -> Reason:
    world = two_nodes(max_gang_size=3)
    world.create(*members(4))
    return _refused(world, "m0")


def starts_with_others() -> Reason:
    world = GangStory(a_node("n", 16, 16))
    world.create(*members(3, least=2, mem=16))
    return _refused(world, "m2")


def planned_again() -> Reason:
    world = two_nodes()
    world.create(*members(3, mem=16))
    world.come("m0", "m1")
    world.later(16)
    return _refused(world, "m0")


def undone() -> Reason:
    world = two_nodes()
    world.create(*members(3, mem=16))
    world.come("m0", "m1", "m2")
    world.land("m0", "m1")
    world.fail("m2")
    world.later(31)
    return _refused(world, "m2")


def below_its_minimum() -> Reason:
    return _why(_degraded())


def _degraded() -> GangStory:
    """A gang whose PodGroup asks for more members than run."""
    world = two_nodes()
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=2)))
    world.start(*members(2, least=None, mem=16))
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=4)))
    return world


def lost() -> Reason:
    world = _degraded()
    world.delete("m0")
    return _why(world)


def completed() -> Reason:
    """What the members are told that the gang does not need any more."""
    world = two_nodes()
    launcher = a_member("launcher", role="launcher", ends="launcher")
    world.start(*members(2, least=3, mem=16, role="worker", ends="launcher"), launcher)
    world.change("launcher", phase="Succeeded")
    return next(effect.reason for effect in world.done if isinstance(effect, Evict))


def timed_out() -> Reason:
    world = two_nodes()
    world.create(*members(2, least=3, annotations={names.SCHEDULE_TIMEOUT_SECONDS: "60"}))
    world.later(61)
    return _refused(world, "m0")


def taken() -> Reason:
    world = two_nodes()
    world.start(*members(2, whole=1, mem=0))
    world.create(a_member("x0", owner="other", least=2, whole=1))
    return _refused(world, "x0")


def conflict() -> Reason:
    world = two_nodes()
    world.create(a_member("m0", least=2, mem=8), a_member("m1", least=3, mem=8))
    return next(effect.reason for effect in world.done if isinstance(effect, Report))


CASES = [
    Case("GangAssembling", "gang <gang> waits for its members", assembling),
    Case(
        "GangUnnamed",
        "the pod waits for a gang that it does not name: gangshare.io/group is missing or cannot be read",
        unnamed,
    ),
    Case("GangNoRoom", "gang <gang> waits until all its members fit", no_room),
    Case(
        "GangCannotFit",
        "gang <gang> cannot start: some of its members fit on no node, even an empty one",
        cannot_fit,
    ),
    Case(
        "GangMixedModels",
        "gang <gang> fits only on GPUs of several models, which gangshare.io/mixed-models: allow permits",
        mixed_models,
    ),
    Case("GangTooLarge", "gang <gang> is too large to start as one", too_large),
    Case("GangStarting", "gang <gang> starts with other pods or nodes first", starts_with_others, "wait"),
    Case("GangAgain", "gang <gang> is planned again", planned_again, "wait"),
    Case("GangUndone", "gang <gang> is evicted and restarts as a whole", undone, "wait"),
    Case("GangMemberLost", "gang <gang> lost members and runs with fewer than its minimum", lost),
    Case(
        "GangBelowMinimum",
        "gang <gang> runs with fewer than its minimum until more members run",
        below_its_minimum,
        "wait, or create the missing members",
    ),
    Case("GangCompleted", "gang <gang> has done its work", completed, "nothing", "never: the gang has ended"),
    Case("GangTimedOut", "gang <gang> exceeded its schedule timeout", timed_out),
    Case(
        "GangTaken",
        "gang <gang> has pods of another workload; this pod waits until they have ended or a PodGroup declares the "
        "gang",
        taken,
    ),
    Case(
        "GangConflict",
        "gang <gang> has values that differ or cannot be read; the strictest value is used",
        conflict,
        "correct the values that the numbers name: [below](#values-of-gangs-classes-queues-and-namespaces)",
    ),
]
SECTION = Section(
    "Gangs",
    "All members of a pending gang show its sentence. Numbers follow in Events, in `gangshare explain group NAME` and "
    "in the status of its PodGroup. [gangs.md](gangs.md#phases) explains the phases.",
    CASES,
)
