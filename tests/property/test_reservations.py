"""Room that is kept, in random lives of a small cluster: no GPU is taken past what it has, and nothing lasts."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.engine.types.effects import PostBinding
from extender.engine.types.events import BindDone, PodGone, PodSeen, Tick
from protos.contract.objects import Pod
from tests.builders import a_node, a_pod
from tests.property.shown import Shown
from tests.unit.engine.story import Story, asks_for_room, bound
from tests.unit.engine.test_reservations import a_room, asked

MOST = 20
pods = st.integers(0, MOST - 1)
gpus = st.lists(st.tuples(st.sampled_from(["n1", "n2"]), st.integers(0, 1)), min_size=1, max_size=2)
deeds = st.one_of(
    st.tuples(st.just("come"), pods, st.integers(1, 10)),
    st.tuples(st.just("come whole"), pods, st.integers(1, 2)),
    st.tuples(st.just("ask"), pods, st.none()),
    st.tuples(st.just("bind"), pods, st.sampled_from(["n1", "n2"])),
    st.tuples(st.just("lose"), pods, st.none()),
    st.tuples(st.just("reserve"), pods, gpus),
    st.tuples(st.just("go"), pods, st.none()),
    st.tuples(st.just("pass"), st.just(0), st.floats(0.1, 400)),
)


class Life:
    """What happens to the cluster."""

    def __init__(self) -> None:
        self.story = Story(a_node("n1", 10, 10), a_node("n2", 10, 10))
        self.pods: dict[int, Pod] = {}
        self.shown = Shown()

    def sound(self) -> None:
        self.shown.look(self.story.engine)
        nodes = self.story.engine.nodes.values()
        assert not any(node.books.overused() for node in nodes if node.books is not None)
        engine = self.story.engine
        kept = list(engine.ledger.keepers)
        assert all(engine.pods[uid.removeprefix("room-")].state == "waiting" for uid in kept)

    def do(self, deed: str, number: int, what: Any) -> None:
        pod = self.pods.get(number)
        if deed in ("come", "come whole") and pod is None:
            asked = {"whole": what} if deed == "come whole" else {"mem": what}
            pod = self.pods[number] = a_pod(f"p{number}", **asked)
            self.story.tell(PodSeen(pod))
        elif deed == "pass":
            self.story.now += what
            self.story.tell(Tick())
        elif pod is not None and deed == "go":
            del self.pods[number]
            self.story.tell(PodGone(pod.metadata.uid))
        elif pod is not None and not pod.spec.node_name:
            self._unbound(deed, number, pod, what)

    def _unbound(self, deed: str, number: int, pod: Pod, what: Any) -> None:
        if deed == "ask":
            self.story.filter(pod)
        elif deed == "reserve":
            (node, _), *_ = what
            on_it = sorted({gpu for name, gpu in what if name == node})
            said = asked({f"p{each}": a_room(node, *on_it) for each in (number, (number + 1) % MOST)})
            self.pods[number] = asks_for_room(pod, said)
            self.story.tell(PodSeen(self.pods[number]))
        elif deed in ("bind", "lose"):
            answer = self.story.bind(pod, what or "n1")
            if not isinstance(answer, PostBinding):
                return
            if deed == "bind":
                self.pods[number] = bound(pod, answer)
                self.story.tell(PodSeen(self.pods[number]))
            self.story.tell(BindDone(pod.metadata.uid, "bound" if deed == "bind" else "lost"))


@settings(max_examples=300)
@given(st.lists(deeds, max_size=60))
def test_nothing_is_taken_twice_and_nothing_is_kept_for_ever(done: list[tuple[str, int, Any]]) -> None:
    life = Life()
    for deed, number, what in done:
        life.do(deed, number, what)
        life.sound()
    life.do("pass", 0, 301.0)
    life.do("pass", 0, 301.0)
    assert not life.story.engine.ledger.keepers
