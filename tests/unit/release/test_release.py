"""What `make release` publishes: contents, checksums, and the same bytes each time."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

import release.__main__ as release
from release import archives, contents, kubectl, manifests, notes
from release.manifests import ROOT, ReleaseError

EPOCH = 1_700_000_000
IMAGES = "registry.example.com/gangshare"


def names(archive: Path) -> list[str]:
    with tarfile.open(archive) as tar:
        return tar.getnames()


def test_an_archive_depends_on_nothing_but_the_files(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("tool")
    (tmp_path / "tool").chmod(0o750)
    (tmp_path / "link").symlink_to("tool")
    members = {"b/tool": tmp_path / "tool", "a": tmp_path / "link"}
    archives.pack(tmp_path / "1.tar.gz", members, EPOCH)
    os.utime(tmp_path / "tool", (1, 1))
    archives.pack(tmp_path / "2.tar.gz", dict(reversed(members.items())), EPOCH)

    assert (tmp_path / "1.tar.gz").read_bytes() == (tmp_path / "2.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "1.tar.gz") as tar:
        found = [(entry.name, entry.isfile(), entry.mode, entry.uid, entry.mtime) for entry in tar]
    assert found == [("a", True, 0o755, 0, EPOCH), ("b/tool", True, 0o755, 0, EPOCH)]


def test_checksums_are_those_of_all_files(tmp_path: Path) -> None:
    (tmp_path / "krew").mkdir()
    for name in ("krew/plugin.yaml", "wheel"):
        (tmp_path / name).write_text(name)
    archives.write_sums(tmp_path)
    archives.write_sums(tmp_path)
    assert len((tmp_path / archives.SUMS).read_text().splitlines()) == 2
    assert (
        subprocess.run(["sha256sum", "--check", "--strict", archives.SUMS], cwd=tmp_path, check=False).returncode == 0
    )


def test_wheel_and_sdist_hold_the_packages_and_come_out_the_same(tmp_path: Path) -> None:
    for folder in ("1", "2"):
        release.write_packages(tmp_path / folder, EPOCH)
    first, second = (sorted((tmp_path / folder).iterdir()) for folder in ("1", "2"))
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]
    wheel, sdist = first
    inside = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    version = wheel.name.split("-")[1]
    packages = {"protos", "gangfilter", "extender", "deviceplugin"}
    assert inside == packages | {f"gangshare-{version}.dist-info"}
    held = {name.split("/")[1] for name in names(sdist)}
    assert packages | {"manifests", "release", "tests", "docs", "CHANGELOG.md"} <= held
    assert not held & {".venv", "dist", ".ci"}


@pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is missing: https://kubernetes.io/docs/tasks/tools"
)
def test_every_overlay_is_one_file_with_the_images_of_the_registry(tmp_path: Path) -> None:
    manifests.write_overlays(tmp_path, IMAGES, "1.2.3")
    assert {"nvidia", "gated", "fake", "shared", "gpushare", "standalone"} == set(manifests.overlays())
    for overlay in manifests.overlays():
        text = (tmp_path / f"gangshare-{overlay}.yaml").read_text()
        kinds = [found["kind"] for found in yaml.safe_load_all(text)]
        assert "Namespace" in kinds
        assert "Kustomization" not in kinds
        ours = {image for image in re.findall(r"image: (\S+)", text) if "gangshare" in image}
        assert ours <= {f"{IMAGES}/extender:1.2.3", f"{IMAGES}/plugin:1.2.3"}
        assert f"{IMAGES}/plugin:1.2.3" in ours


def test_contents_name_every_locked_package(tmp_path: Path) -> None:
    contents.write_contents(tmp_path)
    for part in contents.PARTS:
        lock = (ROOT / f"manifests/images/{part}.txt").read_text()
        told = {found["name"] for found in json.loads((tmp_path / f"{part}.cdx.json").read_text())["components"]}
        assert told == set(re.findall(r"^([a-z][\w.-]*)==", lock, re.MULTILINE))


def test_a_chart_is_packed_as_helm_packs_it(tmp_path: Path) -> None:
    chart, shared = tmp_path / "gangshare", tmp_path / "base"
    for folder in (chart / "templates", shared):
        folder.mkdir(parents=True)
    manifests.write_chart(tmp_path, "1.2.3", EPOCH, chart)
    assert not (tmp_path / "gangshare-1.2.3.tgz").exists()

    (chart / "base").symlink_to(shared)
    (chart / ".helmignore").write_text("# a comment\nkustomization.yaml\n")
    for file in (chart / "Chart.yaml", chart / "templates/all.yaml", shared / "kustomization.yaml", shared / "a.yaml"):
        file.write_text("{}")
    manifests.write_chart(tmp_path, "1.2.3", EPOCH, chart)
    inside = {".helmignore", "Chart.yaml", "templates/all.yaml", "base/a.yaml"}
    assert set(names(tmp_path / "gangshare-1.2.3.tgz")) == {f"gangshare/{name}" for name in inside}


def test_a_step_that_fails_says_which() -> None:
    with pytest.raises(ReleaseError, match="no-such-tool is missing"):
        manifests.run("no-such-tool")
    with pytest.raises(ReleaseError, match=r"`sh -c .* …` failed:\nno"):
        manifests.run("sh", "-c", "echo no >&2; exit 3")


def test_the_notes_are_the_section_of_the_version() -> None:
    text = "# Changelog\n\n## 0.2.0 - unreleased\n\n- new\n\n## 0.1.0 - 2026-01-31\n\n- first\n"
    assert notes.versions(text) == ["0.2.0", "0.1.0"]
    assert notes.notes(text, "0.2.0") == "## 0.2.0 - unreleased\n\n- new\n"
    assert notes.notes(text, "0.1.0") == "## 0.1.0 - 2026-01-31\n\n- first\n"
    with pytest.raises(ReleaseError, match=r"no section for 0\.3\.0"):
        notes.notes(text, "0.3.0")


@pytest.fixture
def lib(tmp_path: Path) -> Path:
    """Stands for what is installed: packages, records of the installation, bytecode."""
    made = tmp_path / "lib"
    packed = ("extender/__init__.py", "extender/__main__.py", "x.dist-info/METADATA")
    for name in (*packed, "extender/__pycache__/a.pyc", "x.dist-info/RECORD", "x.dist-info/uv_cache.json"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text("import sys\ndef main(): print(sys.argv[1:])\n")
    return made


def test_the_archive_of_the_kubectl_plugin_runs_by_a_link_as_krew_makes_it(tmp_path: Path, lib: Path) -> None:
    archive = tmp_path / "plugin.tar.gz"
    kubectl.write_archive(archive, lib, EPOCH)
    packed = ["lib/extender/__init__.py", "lib/extender/__main__.py", "lib/x.dist-info/METADATA"]
    assert names(archive) == ["LICENSE", "kubectl-gangshare", *packed]

    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "store", filter="data")
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin/kubectl-gangshare"
    link.symlink_to(tmp_path / "store/kubectl-gangshare")
    assert os.access(link, os.X_OK)
    ran = subprocess.run([sys.executable, link, "top"], capture_output=True, text=True, check=True)
    assert ran.stdout == "['top']\n"


def test_an_old_python_is_told_which_is_expected(tmp_path: Path) -> None:
    launcher = tmp_path / "kubectl-gangshare"
    launcher.write_text(kubectl.LAUNCHER)
    code = f"import runpy, sys; sys.version_info = (3, 9, 1); runpy.run_path({str(launcher)!r})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, "error: python3 is Python 3.9: expected 3.11 to 3.14\n")


def test_trees_of_several_pythons_are_one_if_they_agree(tmp_path: Path) -> None:
    into = tmp_path / "into"
    for python in ("cpython-311", "cpython-312"):
        tree = tmp_path / python
        files = {"p/__init__.py": "same", f"p/a.{python}.so": python, "p.dist-info/WHEEL": python, "bin/tool": python}
        for name, text in files.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
        kubectl.merge(tree, into)
    inside = {str(file.relative_to(into)) for file in archives.files_below(into)}
    assert inside == {"p/__init__.py", "p/a.cpython-311.so", "p/a.cpython-312.so", "p.dist-info/WHEEL"}
    (tmp_path / "cpython-312/p/__init__.py").write_text("other")
    with pytest.raises(ReleaseError, match=r"p/__init__\.py is not the same"):
        kubectl.merge(tmp_path / "cpython-312", into)


def test_the_manifest_for_krew_names_each_archive_with_its_checksum(tmp_path: Path) -> None:
    made = {platform: tmp_path / f"{'-'.join(platform)}.tar.gz" for platform in kubectl.PLATFORMS}
    for file in made.values():
        file.write_text(file.name)
    found = kubectl.manifest("1.2.3", "https://example.com/v1.2.3", made)
    assert (found["metadata"]["name"], found["spec"]["version"]) == ("gangshare", "v1.2.3")
    assert len(found["spec"]["shortDescription"]) <= 50
    for platform in found["spec"]["platforms"]:
        labels = platform["selector"]["matchLabels"]
        file = made[labels["os"], labels["arch"]]
        assert platform["uri"] == f"https://example.com/v1.2.3/{file.name}"
        assert platform["sha256"] == archives.sha256(file)
        assert platform["bin"] == kubectl.NAME


def test_the_lock_of_the_kubectl_plugin_has_hashes_for_every_package() -> None:
    entries = re.findall(r"^[a-z][^\n]*==[^\\]*\\\n +--hash=sha256:", kubectl.LOCK.read_text(), re.MULTILINE)
    assert len(entries) == len(re.findall(r"^[a-z].*==", kubectl.LOCK.read_text(), re.MULTILINE)) > 0
    assert ROOT / "manifests/images/kubectl.in" in kubectl.LOCK.parent.iterdir()
