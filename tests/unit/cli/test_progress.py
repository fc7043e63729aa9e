"""One changing line on a terminal, a line every few seconds elsewhere, and nothing for what is done at once."""

import pytest

from extender.cli.progress import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be changed in place."""
    now = [100.0]
    monkeypatch.setattr("extender.cli.progress.time.monotonic", lambda: now[0])
    return now


def test_a_file_gets_a_line_every_few_seconds(capsys: pytest.CaptureFixture[str], clock: list[float]) -> None:
    with Progress(delay_s=1.0) as shown:
        for second in range(9):
            clock[0] = 100.0 + second
            shown.show(f"at {second}")
    assert capsys.readouterr().out == "at 1\nat 4\nat 7\n"


def test_the_same_line_is_told_once_and_the_last_one_always(
    capsys: pytest.CaptureFixture[str], clock: list[float]
) -> None:
    with Progress(stderr=True) as shown:
        shown.show("a")
        clock[0] += 10
        shown.show("a")
        shown.show("b", last=True)
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "a\nb\n")


def test_a_terminal_gets_one_line_that_changes_and_goes(
    capsys: pytest.CaptureFixture[str], clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with Progress(stderr=True, delay_s=1.0) as shown:
        shown.show("a")
        quiet = capsys.readouterr()
        for line in ("b", "c"):
            clock[0] += 1
            shown.show(line)
    told = capsys.readouterr()
    assert (quiet.out, quiet.err, told.out) == ("", "", "")
    assert "b" in told.err
    assert "c" in told.err
    assert told.err.rstrip().endswith("\x1b[2K")  # the line is erased
