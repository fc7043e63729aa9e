"""How often a pod's annotation is corrected."""

from itertools import accumulate

from deviceplugin.corrections import NO_PACE, _Pace


def test_the_pause_between_two_writes_to_one_pod_doubles_up_to_a_minute() -> None:
    paces = list(accumulate(range(10), lambda pace, _: pace.after(max(0.0, pace.due)), initial=NO_PACE))[1:]
    assert [pace.pause for pace in paces] == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_the_pause_starts_again_after_a_long_time_without_writes() -> None:
    assert _Pace(100.0, 60.0).after(161.0) == _Pace(161.5, 0.5)
    assert _Pace(100.0, 60.0).after(159.0).pause == 60.0
