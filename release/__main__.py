"""`python -m release` fills dist/ with all that a release publishes but the images.

It needs kubectl and a package index.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from pathlib import Path

from release import archives, kubectl, manifests
from release.contents import write_contents
from release.manifests import ROOT, ReleaseError, run
from release.notes import notes


def main() -> None:
    """Make everything, or say in a sentence why not."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--images", required=True, help="registry and name before /extender and /plugin")
    parser.add_argument("--url", required=True, help="where the files of this release will be published")
    parser.add_argument("--to", type=Path, default=ROOT / "dist")
    asked = parser.parse_args()
    try:
        make(asked.to, asked.images, asked.url.rstrip("/"))
    except ReleaseError as error:
        sys.exit(f"error: {error}")


def make(to: Path, images: str, url: str) -> None:
    """Write all files, the checksums last; raises ReleaseError."""
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    to.mkdir(parents=True, exist_ok=True)
    (to / "NOTES.md").write_text(notes((ROOT / "CHANGELOG.md").read_text(), version))
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct"))
    write_packages(to, epoch)
    write_contents(to)
    manifests.write_overlays(to, images, version)
    manifests.write_chart(to, version, epoch)
    kubectl.write_plugin(to, to / f"gangshare-{version}-py3-none-any.whl", version, url, epoch)
    archives.write_sums(to)


def write_packages(to: Path, epoch: int) -> None:
    """Write wheel and sdist."""
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch)
    run(sys.executable, "-m", "hatchling", "build", "--directory", str(to))


if __name__ == "__main__":
    main()
