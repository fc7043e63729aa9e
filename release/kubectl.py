"""The kubectl plugin as krew installs it: for each platform an archive with a launcher and all that it imports.

Some of these packages are compiled. Python loads no compiled module from a zip, so a zipapp would have to unpack itself
into the user's home at its first start. krew unpacks archives anyway: the packages lie beside the launcher. Compiled
modules have Python's version in their names, so those of all versions lie side by side.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from release.archives import files_below, pack, sha256
from release.manifests import ROOT, ReleaseError, run

NAME = "kubectl-gangshare"
INSTALLED = ("RECORD", "REQUESTED", "direct_url.json", "uv_cache.json")
"""Records of an installation, beside the metadata of a package."""
LOCK = ROOT / "manifests/images/kubectl.txt"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = {
    ("linux", "amd64"): "x86_64-manylinux_2_28",
    ("linux", "arm64"): "aarch64-manylinux_2_28",
    ("darwin", "arm64"): "aarch64-apple-darwin",
}
"""By operating system and architecture as krew names them: the platform as uv names it."""
DESCRIPTION = """The user commands of Gangshare, GPU sharing and gang scheduling for Kubernetes:
top, explain, queues, whatif, defrag and others, with the rights of the kubeconfig's user.
"""
LAUNCHER = f"""#!/usr/bin/env python3
import os
import sys

FIRST, LAST = ({PYTHONS[0].replace(".", ", ")}), ({PYTHONS[-1].replace(".", ", ")})
if not FIRST <= sys.version_info[:2] <= LAST:
    found = "%d.%d" % sys.version_info[:2]
    sys.exit("error: python3 is Python " + found + ": expected {PYTHONS[0]} to {PYTHONS[-1]}")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib"))

from extender.__main__ import main

main()
"""
"""Readable to any Python 3, so that an old one can say so."""


def write_plugin(to: Path, wheel: Path, version: str, url: str, epoch: int) -> None:
    """Write the archives of all platforms, and the manifest for krew; needs a package index."""
    archives = {}
    for (system, machine), platform in PLATFORMS.items():
        archives[system, machine] = to / f"{NAME}-{version}-{system}-{machine}.tar.gz"
        with tempfile.TemporaryDirectory() as folder:
            install(Path(folder), wheel, platform)
            write_archive(archives[system, machine], Path(folder), epoch)
    (to / "krew").mkdir(exist_ok=True)
    described = manifest(version, url, archives)
    (to / "krew/gangshare.yaml").write_text(yaml.safe_dump(described, sort_keys=False, width=120))


def install(lib: Path, wheel: Path, platform: str) -> None:
    """Fill a folder with our wheel and the locked packages, for one platform and all versions of Python."""
    options = ("--quiet", "--no-deps", "--only-binary=:all:", f"--python-platform={platform}")
    for python in PYTHONS:
        with tempfile.TemporaryDirectory() as folder:
            target = ("--target", folder, f"--python-version={python}")
            uv = (sys.executable, "-m", "uv", "pip", "install", *options, *target)
            run(*uv, "--require-hashes", "--requirement", str(LOCK))
            run(*uv, str(wheel))
            merge(Path(folder), lib)


def merge(tree: Path, into: Path) -> None:
    """Add what is new; raises ReleaseError if two versions of Python differ in a file that is imported."""
    for file in files_below(tree):
        name = file.relative_to(tree)
        there = into / name
        if name.parts[0] == "bin" or name.name in (".lock", "CACHEDIR.TAG", ".gitignore"):
            continue
        if not there.exists():
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, there)
        elif not name.parts[0].endswith(".dist-info") and there.read_bytes() != file.read_bytes():
            raise ReleaseError(f"{name} is not the same for all of Python {', '.join(PYTHONS)}")


def write_archive(to: Path, lib: Path, epoch: int) -> None:
    """Pack the launcher, its packages and the licence."""
    with tempfile.TemporaryDirectory() as folder:
        launcher = Path(folder, NAME)
        launcher.write_text(LAUNCHER)
        launcher.chmod(0o755)
        inside = {f"lib/{file.relative_to(lib)}": file for file in _shipped(lib)}
        pack(to, {NAME: launcher, "LICENSE": ROOT / "LICENSE", **inside}, epoch)


def manifest(version: str, url: str, archives: Mapping[tuple[str, str], Path]) -> dict[str, Any]:
    """What krew reads: where each platform's archive will be published, and its checksum."""
    platforms = [
        {
            "selector": {"matchLabels": {"os": system, "arch": machine}},
            "uri": f"{url}/{archive.name}",
            "sha256": sha256(archive),
            "bin": NAME,
        }
        for (system, machine), archive in archives.items()
    ]
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "gangshare"},
        "spec": {
            "version": f"v{version}",
            "homepage": url,
            "shortDescription": "Show GPU allocations, queues and why pods wait",
            "description": DESCRIPTION,
            "caveats": f"Needs python3 in PATH, version {PYTHONS[0]} to {PYTHONS[-1]}.\n",
            "platforms": platforms,
        },
    }


def _shipped(lib: Path) -> Iterator[Path]:
    """All but bytecode and records of the installation, which differ from one installation to the next."""
    for file in files_below(lib):
        installer = file.parent.name.endswith(".dist-info") and file.name in INSTALLED
        if "__pycache__" not in file.parts and not installer:
            yield file
