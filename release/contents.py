"""What is in the images and the kubectl plugin, as CycloneDX: `make sbom`."""

from __future__ import annotations

import sys
from pathlib import Path

from release.manifests import ROOT, run

PARTS = ("extender", "plugin", "kubectl")


def write_contents(to: Path) -> None:
    """Write PART.cdx.json of every part, from its lock; the same lock gives the same file."""
    to.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        output = ("--output-reproducible", "--output-file", str(to / f"{part}.cdx.json"))
        run(sys.executable, "-m", "cyclonedx_py", "requirements", *output, f"manifests/images/{part}.txt")


if __name__ == "__main__":
    write_contents(ROOT / "dist")
