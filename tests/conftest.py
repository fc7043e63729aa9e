"""What all tests share."""

import functools
from collections.abc import Iterator

import grpc.aio
import pytest
import structlog
from hypothesis import settings

from extender.engine.state.quarantine import CaughtError, Quarantine
from extender.faults import Faults

settings.register_profile("gangshare", deadline=None)  # how long an example takes is no matter of a unit test
settings.load_profile("gangshare")
grpc.aio.init_grpc_aio()  # or its poller ends with the last server's memory, where it may wait for itself


@pytest.fixture(autouse=True)
def logs_can_be_captured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A logger that is kept, or a level that is set, by a test that sets up logging hides nothing from later tests."""
    set_up = structlog.configure

    @functools.wraps(set_up)
    def configure(**said: object) -> None:
        set_up(**{**said, "cache_logger_on_first_use": False})  # type: ignore[arg-type]

    monkeypatch.setattr(structlog, "configure", configure)
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def errors_of_ours_fail_the_test(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the extender would catch and set aside is raised, but in tests of just that (marker `faults`)."""
    if request.node.get_closest_marker("faults") is not None:
        return

    def caught(_: Quarantine, caught: CaughtError) -> None:
        raise caught.error

    def told(_: Faults, __: str, ___: str, error: Exception) -> None:
        raise error

    monkeypatch.setattr(Quarantine, "caught", caught)
    monkeypatch.setattr(Faults, "caught", told)
