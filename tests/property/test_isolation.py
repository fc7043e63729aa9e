"""No pod is newly placed on a node that does not isolate its parts as demanded, whatever changes on the way."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.engine.types.effects import Effect, PostBinding
from extender.engine.types.events import ClassSeen, NamespaceSeen, NodeSeen
from protos.contract import names
from protos.contract.gpu_class import GpuClass
from protos.contract.isolation import DEMANDED, PROMISED, Demanded, Isolation, stricter
from protos.contract.namespace import Namespace
from protos.contract.objects import Pod
from protos.contract.selection import Selection
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import GangStory, members

NODES = ("a", "b", "c")
CLASS: Demanded = "memory"
LEVELS = (None, PROMISED, Isolation("driver"), Isolation("mps", "cooperative"), Isolation("mps", "mps"))
KINDS = (
    "level",
    "label",
    "label",
    "single",
    "single",
    "gang",
    "filter",
    "filter",
    "bind",
    "all come",
    "land",
    "fail",
    "wait",
)
Step = tuple[str, int, int]
STEPS = st.tuples(
    st.sampled_from(KINDS),
    st.integers(0, 7),
    st.integers(0, 7),
)


class World(GangStory):
    """Checks each Binding when it is written."""

    def __init__(self, cluster: Demanded) -> None:
        self.levels: dict[str, Isolation | None] = dict.fromkeys(NODES)
        self.default: Demanded | None = None
        self.cluster = cluster
        self.offered: dict[str, str] = {}
        super().__init__(*(a_node(name, 8, 8) for name in NODES), default_isolation=cluster)
        self.tell(ClassSeen(GpuClass(name="isolated", selection=Selection(isolation=CLASS))))

    def level(self, name: str, isolation: Isolation | None) -> None:
        self.levels[name] = isolation
        self.nodes[name] = a_node(name, 8, 8, isolation=isolation)
        self.tell(NodeSeen(self.nodes[name]))

    def label(self, demanded: Demanded | None) -> None:
        self.default = demanded
        self.tell(NamespaceSeen(Namespace("default", {}, isolation=demanded)))

    def demanded(self, pod: Pod) -> Demanded:
        said = pod.metadata.annotations.get(names.ISOLATION)
        own = next((each for each in DEMANDED if each == said), self.default or self.cluster)
        return stricter(own, CLASS if names.GPU_CLASS in pod.metadata.annotations else "any")

    def carry(self, effects: list[Effect]) -> list[Effect]:
        before = set(self.flying)
        found = super().carry(effects)
        for name in self.flying.keys() - before:
            self.check(name, self.flying[name])
        return found

    def bind(self, name: str, node: str) -> str:
        before = self.flying.get(name)
        came = super().bind(name, node)
        if name in self.flying and self.flying[name] is not before:
            self.check(name, self.flying[name])
        return came

    def check(self, name: str, place: PostBinding) -> None:
        demanded, allocation = self.demanded(self.pods[name]), place.allocation
        assert allocation is not None
        if all(share.whole for shares in allocation.containers.values() for share in shares):
            assert allocation.isolation is None
            return
        assert (self.levels[place.node] or PROMISED).meets(demanded)
        assert allocation.isolation == (demanded if demanded != "any" else None)

    def waiting(self) -> list[str]:
        """The pods that kube-scheduler may take."""
        pending = (name for name, pod in self.pods.items() if not pod.spec.node_name)
        return [name for name in pending if name not in self.flying and name not in self.held]

    def do(self, step: Step, number: int) -> None:
        kind, one, other = step
        demand: dict[str, str] = {} if one > 3 else {names.ISOLATION: DEMANDED[one % 3]}
        demand |= {names.GPU_CLASS: "isolated"} if other == 0 else {}
        match kind:
            case "level":
                self.level(NODES[one % 3], LEVELS[other % len(LEVELS)])
            case "label":
                self.label((None, *DEMANDED)[one % 4])
            case "single":
                whole = int(other == 1)
                self.create(a_pod(f"p{number}", mem=0 if whole else 2, whole=whole, annotations=demand))
            case "gang":
                self.create(*members(2, gang=f"g{number}", prefix=f"g{number}-", mem=2, annotations=demand))
            case "filter" if waiting := self.waiting():
                name = waiting[one % len(waiting)]
                self.offered[name] = next(iter(self.ask(name).nodes), "")
            case "bind":
                for name in sorted(self.offered.keys() & self.waiting()):
                    if node := self.offered.pop(name):
                        self.bind(name, node)
            case "all come":
                self.come(*self.waiting())
            case "land":
                self.land()
            case "fail":
                self.fail()
            case "wait":
                self.later(1.0)


@settings(max_examples=80)
@given(st.sampled_from(DEMANDED), st.lists(STEPS, min_size=15, max_size=40))
def test_no_pod_is_newly_placed_where_its_demand_is_not_met(cluster: Demanded, steps: list[Step]) -> None:
    world = World(cluster)
    for number, step in enumerate(steps):
        world.do(step, number)
    world.fail()
    for name in NODES:
        world.level(name, Isolation("mps", "mps"))
    for _ in range(3):
        world.later(2.0)
        world.come(*world.waiting())
        world.land()
    pending = [pod for pod in world.engine.pods.values() if pod.state == "waiting"]
    assert all(world.engine.explain(pod).code in ("NoRoom", "GangNoRoom") for pod in pending)
