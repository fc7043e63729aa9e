"""How many binds may be held by the files that the process may open."""

import resource
import sys

import pytest

from extender.server import http, run
from extender.settings import Settings
from protos.contract.shared_settings import SettingsError


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The limits of open files, soft and hard: the last one holds."""
    told = [(1024, 1024)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: told[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: told.append(limit))
    return told


def test_the_limit_is_raised_as_far_as_it_goes(limits: list[tuple[int, int]]) -> None:
    limits.append((1024, 20_000))
    assert http.connections() == 20_000 - http.OTHER_FILES
    assert limits[-1] == (20_000, 20_000)


def test_without_a_limit_there_is_none(limits: list[tuple[int, int]]) -> None:
    limits.append((1024, resource.RLIM_INFINITY))
    assert http.connections() == sys.maxsize


def test_a_gang_may_not_be_larger_than_the_process_can_hold(limits: list[tuple[int, int]]) -> None:
    assert run.decisions(Settings()).max_gang_size == 1024 - http.OTHER_FILES
    limits.append((1 << 20, 1 << 20))
    assert run.decisions(Settings()).max_gang_size == 2000
    assert run.decisions(Settings(max_gang_size=500)).max_gang_size == 500


def test_a_largest_gang_of_nobody_is_refused() -> None:
    with pytest.raises(SettingsError, match="--max-gang-size is 0: expected 1 or more"):
        Settings(max_gang_size=0)
