"""Types the commands of the pages as users do, with kubectl and gangshare on the PATH, at an embedded cluster."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from extender.sim.cluster import EmbeddedCluster
from tests.scenarios.commands import ROOT
from tests.unit.docs import typed
from tests.unit.docs.pages import files, page

_PATIENCE_S = 30.0
_SHOWN = 2_000
"""Characters of a command's output in a failure."""


class Typist:
    """A user in a folder of their own, with manifests and traces as in a clone, and the files that pages show."""

    def __init__(self, folder: Path, env: Mapping[str, str], words: Mapping[str, str] | None = None) -> None:
        if shutil.which("kubectl") is None:
            pytest.skip("kubectl is missing: https://kubernetes.io/docs/tasks/tools")
        self.folder = folder
        self.words = dict(words or {})
        """What stands for the placeholders of the pages."""
        shutil.copytree(ROOT / "manifests", folder / "manifests", symlinks=True)
        (folder / "tests").symlink_to(ROOT / "tests")
        programs = folder / "bin"
        programs.mkdir()
        program = programs / "gangshare"
        program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m extender "$@"\n')
        program.chmod(0o755)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("GANGSHARE_", "KUBECONFIG"))}
        self._env = {**kept, "PATH": f"{programs}:{kept['PATH']}", "KUBECACHEDIR": str(folder / "cache"), **env}

    @classmethod
    def at(cls, cluster: EmbeddedCluster, folder: Path, **words: str) -> Typist:
        """A user of this cluster."""
        reached = {"KUBECONFIG": str(cluster.kubeconfig), "GANGSHARE_SERVER": cluster.place.status_url}
        return cls(folder, reached, words)

    async def type(self, line: str, expected: str = "") -> str:
        """What the command prints, which ends well; it is typed again until it prints what is expected."""
        for word, meant in self.words.items():
            line = line.replace(word, meant)
        end = time.monotonic() + _PATIENCE_S
        while True:
            ran = await asyncio.to_thread(self._run, line)
            if ran.returncode == 0 and expected in ran.stdout:
                return ran.stdout
            said = (
                f"{line}\nstatus {ran.returncode}, expected {expected!r}\n{ran.stdout[:_SHOWN]}{ran.stderr[-_SHOWN:]}"
            )
            assert expected, said
            assert time.monotonic() < end, said
            await asyncio.sleep(0.1)

    async def follow(self, of: str, heading: str, *expected: str) -> list[str]:
        """Type the commands of a section. Each prints what is expected of it, in their order."""
        for name, text in files(page(of)).items():
            (self.folder / name).write_text(text)
        lines = typed.steps(of, heading)
        assert len(expected) == len(lines), f"{len(lines)} commands, {len(expected)} expectations: {lines}"
        return [await self.type(line, text) for line, text in zip(lines, expected, strict=True)]

    def _run(self, line: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", "-c", line]
        return subprocess.run(command, capture_output=True, text=True, cwd=self.folder, env=self._env, check=False)
