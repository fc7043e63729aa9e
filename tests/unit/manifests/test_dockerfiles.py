"""The images hold what their processes import, and nothing of the other process."""

from __future__ import annotations

import ast
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.manifests.conftest import ROOT

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
    assert copied - {"pyproject.toml", "README.md", "LICENSE"} == packages

    imported = {name for package in packages for name in third_party(ROOT / package)} - BUILD_ONLY
    needed = {DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in imported} - UNUSED[part]
    assert installed(dockerfile) == needed


@pytest.mark.parametrize("part", ["plugin", "extender"])
def test_versions_come_from_the_project_alone(part: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = {re.split(r"[<>=;\[ ]", dependency)[0] for dependency in project["dependencies"]}
    assert installed((ROOT / f"Dockerfile.{part}").read_text()) <= known


def installed(dockerfile: str) -> set[str]:
    (line,) = re.findall(r"install --constraint constraints.txt (.*)", dockerfile.replace("\\\n", " "))
    return set(shlex.split(line))


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
