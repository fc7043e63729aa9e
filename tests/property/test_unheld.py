"""Members that kube-scheduler binds by itself, under arbitrary histories: last to go, never a start without them."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from extender.engine.types.effects import Evict
from gangfilter.table import Phase
from tests.builders import a_node
from tests.unit.engine.gang_story import a_member, members
from tests.unit.engine.test_externally_bound import Shared

HANDS, BOSSES = ("m0", "m1", "m2"), ("b0", "b1")
LEAST = len(HANDS) + len(BOSSES)
MOVES = st.one_of(
    st.tuples(st.sampled_from(["ask", "hang up"]), st.sampled_from(HANDS)),
    st.tuples(st.sampled_from(["show", "show and bind", "show elsewhere"]), st.sampled_from(BOSSES)),
    st.tuples(st.just("pass"), st.sampled_from([0.3, 1.0, 6.0, 16.0])),
)


class History:
    """A gang of three with GPUs and two without, and what has become of it."""

    def __init__(self) -> None:
        self.world = Shared(a_node("n1", 16, 16, 16), a_node("plain"))
        self.world.create(*members(3, least=LEAST, mem=16), *(a_member(name, least=LEAST) for name in BOSSES))

    def move(self, what: str, whom: str | float) -> None:
        match what, whom:
            case "pass", float(seconds):
                self.world.later(seconds)
            case "ask", str(name) if self.free(name) and name not in self.world.held:
                self.world.come(name)
            case "hang up", str(name) if name in self.world.held:
                self.world.leave(name)
            case "show", str(name) if self.free(name):
                self.let_go(name)
            case "show elsewhere", str(name) if self.free(name):
                self.world.observe(name, ["nowhere"])
            case "show and bind", str(name) if self.free(name):
                for node in self.let_go(name):
                    self.world.bound_alone(name, node)
        self.follow()

    def let_go(self, name: str) -> tuple[str, ...]:
        nodes = self.world.observe(name).nodes
        if nodes and self.world.phase() is Phase.STARTING:
            assert set(HANDS) <= self.world.held, "all others are in bind"
        return nodes

    def follow(self) -> None:
        """Bindings succeed, and controllers replace pods that were evicted, but not those that came in their place."""
        world = self.world
        if world.flying and world.gang().epoch == 1 and not world.evicted():
            assert not any(map(self.free, BOSSES)), "those without GPUs were bound before"
        world.land()
        for ref in [effect.pod for effect in world.done if isinstance(effect, Evict)]:
            pod = world.pods.get(ref.name)
            gone = pod is not None and pod.metadata.uid == ref.uid and bool(pod.spec.node_name)
            if gone and world.phase() is not Phase.RUNNING:
                world.again(ref.name, serial=len(world.done))

    def free(self, name: str) -> bool:
        return not self.world.pods[name].spec.node_name

    def settle(self) -> None:
        """kube-scheduler tries each pod in turn, and no bind is abandoned."""
        for _ in range(100):
            for name in HANDS:
                self.move("ask", name)
            for name in BOSSES:
                self.move("show and bind", name)
            self.move("pass", 2.0)
            if self.world.phase() is Phase.RUNNING:
                return
        raise AssertionError(f"it never runs: {self.world.phase()}, {self.world.known().reason}")


@settings(max_examples=150, deadline=None)
@given(st.lists(MOVES, max_size=25))
@example([("ask", "m0"), ("ask", "m1"), ("ask", "m2"), ("show", "b1"), ("show and bind", "b0"), ("pass", 16.0)])
def test_nobody_is_bound_before_they_may_go_and_the_gang_runs_in_the_end(moves: list[tuple[str, str | float]]) -> None:
    history = History()
    for what, whom in moves:
        history.move(what, whom)
    history.settle()
    assert not any(map(history.free, (*HANDS, *BOSSES)))
