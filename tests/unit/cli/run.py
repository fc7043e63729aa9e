"""The command as a console script runs it, in this process."""

import sys
from typing import NamedTuple
from unittest import mock

import pytest

from extender.__main__ import main


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def gangshare(capsys: pytest.CaptureFixture[str], *args: str, called: str = "gangshare") -> Ran:
    code = 0
    with mock.patch.object(sys, "argv", [f"/usr/bin/{called}", *args]):
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Ran(code, *capsys.readouterr())
