"""The images hold what their processes import, and nothing of the other process."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from tests.unit.manifests.conftest import ROOT

FOLDER = ROOT / "manifests/images"
LOCKED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)")
DISTRIBUTIONS = {"google": "protobuf", "grpc": "grpcio", "pynvml": "nvidia-ml-py", "yaml": "pyyaml"}
"""Distributions whose import name is another."""
BUILD_ONLY = {"grpc_tools"}
UNUSED = {"extender": {"aiohttp", "grpcio", "matplotlib"}, "plugin": set[str]()}
"""Imported by what a pod never runs: the embedded cluster, the kubelet's protocol, pictures."""


@pytest.mark.parametrize(
    ("part", "packages"), [("plugin", {"protos", "deviceplugin"}), ("extender", {"protos", "gangfilter", "extender"})]
)
def test_an_image_holds_its_packages_and_what_they_import(part: str, packages: set[str]) -> None:
    dockerfile = (ROOT / f"Dockerfile.{part}").read_text()
    copied = {word for line in re.findall(r"^COPY (?!--)(.*)", dockerfile, re.MULTILINE) for word in line.split()[:-1]}
    locks = {"manifests/images/build.txt", f"manifests/images/{part}.txt"}
    assert copied - {"pyproject.toml", "README.md", "LICENSE"} == packages | locks

    imported = {name for package in packages for name in third_party(ROOT / package)} - BUILD_ONLY
    needed = {DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in imported} - UNUSED[part]
    assert set((FOLDER / f"{part}.in").read_text().split()) == needed


@pytest.mark.parametrize("part", ["plugin", "extender"])
def test_an_image_installs_locked_packages_alone(part: str) -> None:
    text = (ROOT / f"Dockerfile.{part}").read_text()
    installs = re.findall(r"/opt/pip/bin/pip (?:--python \S+ )?install .*", text)
    assert len(installs) == 3
    for line in installs:
        assert "--require-hashes --requirement" in line or "--no-deps /wheels/" in line
    assert "hatchling" in locked("build")


@pytest.mark.parametrize("part", ["plugin", "extender"])
def test_a_lock_holds_what_the_image_needs_in_versions_that_the_project_allows(part: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = {canonicalize_name(each.name): each for each in map(Requirement, project["dependencies"])}
    named = set(map(canonicalize_name, (FOLDER / f"{part}.in").read_text().split()))
    found = locked(part)
    assert named <= known.keys() & found.keys()
    for name, version in found.items():
        if name in known:
            assert known[name].specifier.contains(version, prereleases=True), f"{name}=={version}"


def locked(image: str) -> dict[NormalizedName, str]:
    """Version by name, of every package in the lock; each must have hashes."""
    found: dict[NormalizedName, str] = {}
    for entry in (FOLDER / f"{image}.txt").read_text().replace("\\\n", " ").splitlines():
        if match := LOCKED.match(entry):
            assert "--hash=sha256:" in entry, entry
            found[canonicalize_name(match[1])] = match[2]
    return found


def third_party(package: Path) -> Iterator[str]:
    """Top-level names of all imports, of the standard library's and our own packages none."""
    ours = {"protos", "gangfilter", "extender", "deviceplugin"}
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Import(found):
                    modules = [alias.name for alias in found]
                case ast.ImportFrom(str(module), _, 0):
                    modules = [module]
                case _:
                    continue
            for name in {module.partition(".")[0] for module in modules}:
                if name not in ours and name not in sys.stdlib_module_names:
                    yield name
