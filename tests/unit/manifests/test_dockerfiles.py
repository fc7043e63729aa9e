"""The images hold what their processes import, and nothing of the other process or of the embedded cluster."""

from __future__ import annotations

import ast
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from tests.unit.manifests.conftest import ROOT, Objects

FOLDER = ROOT / "manifests/images"
LOCKED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)")
DISTRIBUTIONS = {"google": "protobuf", "grpc": "grpcio", "pynvml": "nvidia-ml-py", "yaml": "pyyaml"}
"""Distributions whose import name is another."""
TRACES = {"opentelemetry-exporter-otlp-proto-http", "opentelemetry-sdk"}
"""Distributions of the package `opentelemetry`."""
BUILD_ONLY = {"grpc_tools"}
UNUSED = {"extender": {"grpcio"}, "plugin": set[str]()}
"""Imported by what a pod never runs: the kubelet's protocol."""
EMBEDDED = (Path("extender/sim"), Path("extender/cli/demo"))


@pytest.mark.parametrize(
    ("part", "packages"), [("plugin", {"protos", "deviceplugin"}), ("extender", {"protos", "gangfilter", "extender"})]
)
def test_an_image_holds_its_packages_and_what_they_import(part: str, packages: set[str]) -> None:
    locks = {"manifests/images/build.txt", f"manifests/images/{part}.txt"}
    assert copied(part) - {"pyproject.toml", "README.md", "LICENSE"} == packages | locks

    imported = {name for file in held(part) if file.suffix == ".py" for name in third_party(ROOT / file)} - BUILD_ONLY
    needed = {DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in imported} - UNUSED[part]
    needed = (needed - {"opentelemetry"}) | (TRACES if "opentelemetry" in needed else set())
    assert set((FOLDER / f"{part}.in").read_text().split()) == needed


@pytest.mark.parametrize("part", ["plugin", "extender"])
def test_no_image_holds_the_embedded_cluster_and_what_it_holds_runs(part: str, tmp_path: Path) -> None:
    files = held(part)
    assert [file for file in files if set(EMBEDDED) & {file, *file.parents}] == []
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        here = {**os.environ, "PYTHONPATH": str(tmp_path)}
        command = [sys.executable, "-m", *args]
        return subprocess.run(command, cwd=tmp_path, env=here, capture_output=True, text=True, check=False)

    if part == "plugin":
        assert run("deviceplugin", "--help").returncode == 0
        assert run("deviceplugin.usage", "--help").returncode == 0
        return
    assert run("extender", "extender", "--help").returncode == 0
    for command in ("demo", "simulate"):
        ran = run("extender", command)
        assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
        assert ran.stderr.endswith("pip install 'gangshare[demo]'\n")


@pytest.mark.parametrize(
    ("path", "out"),
    [
        ("extender/cli/top.py", False),
        ("extender/sim/cluster.py", True),
        ("extender/simple.py", False),
        ("extender/__pycache__/x.pyc", True),
        ("tests/conftest.py", True),
    ],
)
def test_the_ignore_file_is_read_as_builders_read_it(path: str, out: bool) -> None:
    assert ignored(Path(path)) is out


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
    wanted = [*project["dependencies"], *project["optional-dependencies"]["traces"]]
    known = {canonicalize_name(each.name): each for each in map(Requirement, wanted)}
    named = set(map(canonicalize_name, (FOLDER / f"{part}.in").read_text().split()))
    found = locked(part)
    assert named <= known.keys() & found.keys()
    for name, version in found.items():
        if name in known:
            assert known[name].specifier.contains(version, prereleases=True), f"{name}=={version}"


@pytest.mark.parametrize(("part", "user"), [("plugin", "0:0"), ("extender", "65532:65532")])
def test_the_second_stage_only_copies_what_the_first_built(part: str, user: str) -> None:
    """So its base needs no shell, and says as whom it runs whatever the base says."""
    first, last = (ROOT / f"Dockerfile.{part}").read_text().split("\nFROM ${RUNTIME}\n")
    assert first.count("\nFROM ${BASE} AS build\n") == 1
    words = [line.split()[0] for line in re.sub(r"\\\n", "", last).splitlines() if not line.startswith("#")]
    assert set(words) == {"ARG", "LABEL", "COPY", "ENV", "USER", "EXPOSE", "ENTRYPOINT"}
    assert words.count("COPY") == 1
    assert f"\nUSER {user}\n" in last


@pytest.mark.parametrize("part", ["plugin", "extender"])
def test_an_image_tells_its_version_its_commit_and_its_licence(part: str) -> None:
    labels = set(re.findall(r"org\.opencontainers\.image\.(\w+)=", (ROOT / f"Dockerfile.{part}").read_text()))
    assert labels == {"title", "description", "licenses", "version", "revision", "created"}


def test_images_are_built_on_nothing_but_digests() -> None:
    if shutil.which("make") is None:
        pytest.skip("make is missing")
    digest = f"base@sha256:{'0' * 64}"

    def images(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["make", "--no-print-directory", "-o", "sbom", "images", "BUILDER=echo", *words]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert "BASE or RUNTIME is 'base:1'" in images("BASE=base:1").stdout
    assert "BASE or RUNTIME is 'small:1'" in images(f"BASE={digest}", "RUNTIME=small:1").stdout
    lines = images(f"BASE={digest}", "PLATFORMS=linux/amd64,linux/arm64").stdout.splitlines()
    assert len(lines) == 2
    for line, part in zip(lines, ("extender", "plugin"), strict=True):
        assert f"--build-arg RUNTIME={digest} " in line
        assert line.startswith("build --platform linux/amd64,linux/arm64 ")
        assert f" --file Dockerfile.{part} --manifest localhost/gangshare/{part}:" in line


def test_every_process_with_a_port_is_probed(kustomize: Callable[[str], Objects]) -> None:
    for folder, kind, name in (
        ("base", "Deployment", "gangshare-scheduler"),
        ("base", "DaemonSet", "gangshare-plugin"),
    ):
        for container in kustomize(folder).containers(kind, name).values():
            assert "livenessProbe" in container, container["name"]
    (usage,) = yaml.safe_load((ROOT / "manifests/components/usage/daemonset.yaml").read_text())["spec"]["template"][
        "spec"
    ]["containers"]
    assert usage["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}


def copied(part: str) -> set[str]:
    """What the Dockerfile copies from the repository."""
    dockerfile = (ROOT / f"Dockerfile.{part}").read_text()
    return {word for line in re.findall(r"^COPY (?!--)(.*)", dockerfile, re.MULTILINE) for word in line.split()[:-1]}


def held(part: str) -> list[Path]:
    """The files of the repository that the image is built of, by their paths from its root."""
    found = (file for name in copied(part) for file in (ROOT / name, *(ROOT / name).rglob("*")) if file.is_file())
    return [file for file in (each.relative_to(ROOT) for each in found) if not ignored(file)]


def ignored(path: Path) -> bool:
    """Whether .dockerignore leaves the file out: the last line decides that names it or a folder above it."""
    left_out = False
    for line in (ROOT / ".dockerignore").read_text().split():
        pattern = line.removeprefix("!")
        names = path.parts if pattern.startswith("**/") else map(str, (path, *path.parents))
        if any(fnmatch.fnmatchcase(name, pattern.removeprefix("**/")) for name in names):
            left_out = not line.startswith("!")
    return left_out


def locked(image: str) -> dict[NormalizedName, str]:
    """Version by name, of every package in the lock; each must have hashes."""
    found: dict[NormalizedName, str] = {}
    for entry in (FOLDER / f"{image}.txt").read_text().replace("\\\n", " ").splitlines():
        if match := LOCKED.match(entry):
            assert "--hash=sha256:" in entry, entry
            found[canonicalize_name(match[1])] = match[2]
    return found


def third_party(file: Path) -> Iterator[str]:
    """Top-level names of all imports, of the standard library's and our own packages none."""
    ours = {"protos", "gangfilter", "extender", "deviceplugin"}
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
