"""What a cluster gets: each overlay as one file, and the chart's archive if there is a chart."""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import tempfile
from pathlib import Path

from release.archives import files_below, pack

ROOT = Path(__file__).resolve().parents[1]
OVERLAYS = ROOT / "manifests/overlays"
CHART = ROOT / "manifests/helm/gangshare"
IMAGES = ("extender", "plugin")


class ReleaseError(Exception):
    """A release cannot be made; the message says why."""


def overlays() -> list[str]:
    """Names of all overlays."""
    return sorted(found.parent.name for found in OVERLAYS.glob("*/kustomization.yaml"))


def render(overlay: str, images: str, version: str) -> str:
    """An overlay as one file, with the images of a registry; raises ReleaseError."""
    replaced = [{"name": f"gangshare/{part}", "newName": f"{images}/{part}", "newTag": version} for part in IMAGES]
    with tempfile.TemporaryDirectory() as folder:
        base = os.path.relpath(OVERLAYS / overlay, Path(folder).resolve())
        Path(folder, "kustomization.yaml").write_text(json.dumps({"resources": [base], "images": replaced}))
        return run("kubectl", "kustomize", folder)


def write_overlays(to: Path, images: str, version: str) -> None:
    """Write gangshare-OVERLAY.yaml of every overlay."""
    for overlay in overlays():
        (to / f"gangshare-{overlay}.yaml").write_text(render(overlay, images, version))


def write_chart(to: Path, version: str, epoch: int, chart: Path = CHART) -> None:
    """Write the archive that `helm package` would: links followed, what .helmignore names left out."""
    if not (chart / "Chart.yaml").is_file():
        return
    listed = chart / ".helmignore"
    lines = listed.read_text().splitlines() if listed.is_file() else []
    ignored = [line for line in lines if line and not line.startswith("#")]
    members = {
        f"{chart.name}/{file.relative_to(chart)}": file
        for file in files_below(chart)
        if not any(fnmatch.fnmatchcase(file.name, pattern) for pattern in ignored)
    }
    pack(to / f"{chart.name}-{version}.tgz", members, epoch)


def run(*command: str) -> str:
    """What a command prints; raises ReleaseError with the end of what it said."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError as missing:
        raise ReleaseError(f"{command[0]} is missing") from missing
    if done.returncode:
        end = "\n".join(done.stderr.strip().splitlines()[-15:])
        raise ReleaseError(f"`{' '.join(command[:6])} …` failed:\n{end}")
    return done.stdout
