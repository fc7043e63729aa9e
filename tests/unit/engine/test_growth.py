"""Nothing that passes by is kept: whatever comes and goes, the engine ends up with what it had after the first few.

Tables that remember what may be of use are named here with their bounds, and so in docs/operations.md.
"""

from __future__ import annotations

import pytest

from extender.engine.placement import indexes, mix, roll, score, seats
from extender.engine.policies.elastic import surplus_policy
from extender.engine.policies.preemption import candidates
from extender.engine.queueing import queues, runtimes, usage
from extender.engine.state import ask_reader, cannot_fit, node_numbers, stock
from extender.engine.types.events import NodeGone, NodeSeen, PodGone, PodSeen
from protos.contract import bounds, names
from protos.contract.objects import Pod
from tests import growth
from tests.builders import a_container, a_node, a_pod
from tests.unit.engine.passing import LIVES, Passing
from tests.unit.engine.story import Story

FIRST, MORE = 12, 24
"""How often something comes and goes until it is counted what is kept, and then until that is counted again."""
BOUNDED = {
    "ledger._numbers._gone": node_numbers.RENUMBERED,
    "ledger._numbers._unused": node_numbers.RENUMBERED,
    "indexes._shapes": indexes.MOST_SHAPES,
    "indexes._rota": indexes.MOST_SHAPES,
    "_seats._of": seats.ALL_SEATS,
    "_roll._changed_at": roll.GONE + 3,
    "_roll.names": roll.GONE + 3,
    "_roll.nodes": roll.GONE + 3,
    "_roll.ranks": roll.GONE + 3,
    "scorer.mix._weights": mix.MOST_SHAPES,
    "scorer.mix.adopted": mix.MOST_SHAPES + mix.EVERY,
    "scorer._adopted": mix.MOST_SHAPES + mix.EVERY,
    "scorer._typical": mix.MOST_TYPICAL,
    "scorer._kinds": score.KINDS + 2 * 2,
    "scorer._gpus._young": score.MEMO // 2,
    "scorer._gpus._old": score.MEMO // 2,
    "scorer._presents._young": score.MEMO // 2,
    "scorer._presents._old": score.MEMO // 2,
    "_candidates._rests": candidates.RESTS,
    "_history._runs": runtimes.OWNERS,
    "queues._local_queues": queues.SWEEP,
    "queues._namespaces": queues.SWEEP,
    "usage._known._young": usage.REMEMBERED // 2,
    "usage._known._old": usage.REMEMBERED // 2,
    "_reader._known._young": ask_reader.TEMPLATES // 2,
    "_reader._known._old": ask_reader.TEMPLATES // 2,
    "cannot_fit._known._young": cannot_fit.REMEMBERED // 2,
    "cannot_fit._known._old": cannot_fit.REMEMBERED // 2,
    "stock._matching": stock.REMEMBERED,
    "surplus_policy._known": surplus_policy.REMEMBERED,
}
"""Tables that outlive what they are about, by how the path to them ends: so many entries at most."""


@pytest.mark.parametrize("lives", [*((life,) for life in LIVES), LIVES], ids=lambda lives: "+".join(lives)[:20])
def test_nothing_is_kept_of_what_has_passed_by(lives: tuple[str, ...]) -> None:
    world = Passing()
    for number in range(FIRST):
        world.once(number, *lives)
    world.settle()
    before = growth.sizes(engine=world.story.engine)
    for number in range(FIRST, FIRST + MORE):
        world.once(number, *lives)
    world.settle()
    assert growth.grown(before, growth.sizes(engine=world.story.engine), BOUNDED) == {}


def test_what_functions_remember_is_bounded() -> None:
    unbounded = {name for name, each in growth.caches().items() if each.cache_parameters()["maxsize"] is None}
    assert unbounded <= {"protos.contract.links._sets"}, "those but of two numbers up to 16 have no bound"


LONG = "x" * 20_000
"""A text without use."""
IN_TABLES, ELSEWHERE = 6 << 20, 128 << 10
"""Characters that may be left of all texts together: in the tables with a bound, and beside them."""


def wordy(number: int) -> Pod:
    """A pod that says at great length what it wants, and asks a thousand resources; 1 MB."""
    texts = (
        names.GPU_MODEL, names.GPU_UUID, names.GPU_CLASS, names.QUEUE, names.EXPECTED_RUNTIME, names.RESERVATION,
        names.ALLOCATION, names.GROUP, names.ROLE, names.MIN_MEMBER_BY_ROLE, names.MIN_GPU_MEMORY, names.CHECKPOINT,
        "scheduling.k8s.io/group-name", "hivedscheduler.microsoft.com/pod-scheduling-spec",
        "yunikorn.apache.org/task-groups",
    )  # fmt: skip
    unique = f"{number}{LONG}"
    keys = [{"key": f"{number}-{i}", "operator": "In", "values": [f"{number}{LONG}"]} for i in range(20)]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return a_pod(
        f"wordy-{number}", mem=1, annotations=dict.fromkeys(texts, unique), labels={"app": unique},
        containers=[a_container("main", 1, limits={f"example.com/{number}-{i}": "1" for i in range(1000)})],
        spec={
            "affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": [{"matchExpressions": keys}]}}},
            "tolerations": [{"key": unique, "operator": "Exists"}],
            "nodeSelector": {f"{number}": LONG},
        },
    )  # fmt: skip


def test_long_texts_leave_nothing_behind() -> None:
    growth.forget()
    story = Story(a_node("a", 16, 16))
    for number in range(50):
        for each in (wordy(number), a_pod(f"globs-{number}", mem=1, annotations=many_globs(number))):
            story.tell(PodSeen(each))
            story.filter(each)
            story.tell(PodGone(each.metadata.uid))
    kept = growth.sizes(tables=growth.tables(), engine=story.engine, functions=growth.remembered())
    in_tables = growth.texts(kept, "tables")
    assert in_tables < IN_TABLES
    assert growth.texts(kept) - in_tables < ELSEWHERE


def many_globs(number: int) -> dict[str, str]:
    """As many and as long as may be."""
    return {names.GPU_MODEL: ",".join(f"{number}-{i}-*{'m' * 100}" for i in range(64))}


def test_a_live_pod_is_kept_by_a_few_of_its_resources() -> None:
    story = Story(a_node("a", 16, 16))
    pod = wordy(1)
    story.tell(PodSeen(pod))
    state = story.engine.pods[pod.metadata.uid]
    kept = dict(state.requests)
    assert len(kept) == bounds.RESOURCES_PER_POD.most
    assert {"pods", names.GPU_MEM} <= kept.keys()


def test_a_pod_that_asks_too_many_resources_is_told_so() -> None:
    story = Story(a_node("a", 16, 16))
    many = a_pod("many", containers=[a_container("main", 1, limits={f"example.com/{i}": "1" for i in range(64)})])
    reason = story.engine.filter(many, ["a"], story.now).reason
    assert reason is not None
    assert (reason.code, reason.sentence) == (
        "AskTooMany",
        "resources that a pod requests: 65, expected at most 64",
    )
    few = a_pod("few", containers=[a_container("main", 1, limits={f"example.com/{i}": "1" for i in range(63)})])
    assert story.filter(few) == ["a"]


def test_numbers_of_nodes_are_given_again_and_never_mean_another() -> None:
    story = Story(a_node("stays", 4))
    waits = a_pod("waits", mem=16)
    story.tell(PodSeen(waits))
    for number in range(5 * node_numbers.RENUMBERED):
        story.engine.step(NodeSeen(a_node(f"n{number}", 4)), story.now)
        if number % 100 == 0:
            assert story.engine.filter(waits, ["stays"], story.now).nodes == ()
            excluded = story.engine.pods[waits.metadata.uid].excluded
            assert excluded == 1 << story.engine.nodes[f"n{number}"].number
        story.engine.step(NodeGone(f"n{number}"), story.now)
    assert max(node.number for node in story.engine.nodes.values()) <= 2 * node_numbers.RENUMBERED
    story.tell(NodeSeen(a_node("room", 16)))
    excluded = story.engine.pods[waits.metadata.uid].excluded
    assert not excluded >> story.engine.nodes["room"].number & 1, (
        "a node that is new is excluded by the word of another"
    )
    story.engine.filter(waits, ["stays"], story.now)
