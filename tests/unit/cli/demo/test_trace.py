from extender.cli.demo import manifests, trace
from extender.cli.demo.trace import Recorded, Step
from protos.contract import ask, names
from protos.contract.objects import Pod
from tests.unit.cli.demo.made import as_record


def a_recorded(name: str = "p", gpus: int = 1, share_milli: int = 1000, arrives: int = 0, leaves: int = 10) -> Recorded:
    return Recorded(name, 16000, 32768, gpus, share_milli, arrives, leaves)


def asked(recorded: Recorded) -> ask.PodAsk | None:
    pod: Pod = as_record(manifests.pod(recorded))
    return ask.parse(pod, names.Resources())


def test_the_sample_is_the_first_400_pods_of_openb_in_order_of_arrival() -> None:
    recorded = trace.recorded()
    assert len(recorded) == 400
    assert recorded[0] == Recorded("openb-pod-0000", 12000, 16384, 1, 1000, 0, 12537496)
    assert [pod.arrives for pod in recorded] == sorted(pod.arrives for pod in recorded)
    assert sum(0 < pod.share_milli < 1000 for pod in recorded) > 100


def test_who_has_left_leaves_before_the_next_arrives() -> None:
    short, long, last = a_recorded("a", leaves=5), a_recorded("b", arrives=1, leaves=30), a_recorded("c", arrives=20)
    assert list(trace.steps([short, long, last], 1)) == [Step((), short), Step((), long), Step(("a",), last)]


def test_longer_lives_keep_pods_longer() -> None:
    short, last = a_recorded("a", leaves=5), a_recorded("c", arrives=20)
    assert list(trace.steps([short, last], 10))[-1].leave == ()


def test_nobody_leaves_twice_or_before_it_came() -> None:
    here: set[str] = set()
    for step in trace.steps(trace.recorded(), 6):
        assert here.issuperset(step.leave)
        here = here.difference(step.leave) | {step.arrive.name}


def test_those_who_stay_leave_later_in_their_order() -> None:
    pods = [a_recorded("gone", leaves=5), a_recorded("long", arrives=1, leaves=40), a_recorded("soon", leaves=30)]
    assert trace.remaining([*pods, a_recorded("last", arrives=20, leaves=35)], 1) == ["soon", "last", "long"]


def test_who_stays_is_who_never_left() -> None:
    recorded = trace.recorded()
    left = {name for step in trace.steps(recorded, 6) for name in step.leave}
    assert sorted([*left, *trace.remaining(recorded, 6)]) == sorted(pod.name for pod in recorded)


def test_a_share_becomes_memory_and_slices() -> None:
    half = asked(a_recorded(share_milli=500))
    assert half is not None
    assert (half.containers[0].mem, half.containers[0].slices, half.containers[0].whole) == (12, 50, "")


def test_even_a_tiny_share_asks_something_of_both() -> None:
    tiny = asked(a_recorded(share_milli=1))
    assert tiny is not None
    assert (tiny.containers[0].mem, tiny.containers[0].slices) == (1, 1)


def test_whole_gpus_stay_whole() -> None:
    eight = asked(a_recorded(gpus=8))
    assert eight is not None
    assert (eight.containers[0].gpus, eight.containers[0].whole) == (8, names.WHOLE_GPU)


def test_a_pod_without_gpus_asks_for_none() -> None:
    assert asked(a_recorded(gpus=0, share_milli=0)) is None


def test_every_pod_of_the_trace_is_an_ask_we_understand() -> None:
    assert sum(asked(recorded) is not None for recorded in trace.recorded()) == 376


def test_cpus_are_scaled_down_so_that_gpus_are_short() -> None:
    requests = manifests.pod(a_recorded())["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": "2000m", "memory": str(4096 * 1024**2)}
