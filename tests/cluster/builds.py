"""Gangshare's own images, built as a user would, on a Debian base made here; and kube-scheduler's, from its binary.

Each is a docker archive in the cache, named by a hash of everything it is made of.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import assets, images

ROOT = Path(__file__).parents[2]
SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
PACKAGES = "python3,python3-venv,ca-certificates"
NEEDLESS = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/locale", "usr/share/man")
PIP_SETTINGS = ("cert", "index-url", "extra-index-url", "trusted-host", "proxy", "default-timeout")


@dataclass(frozen=True, slots=True)
class Built:
    """An image by its name and the docker archive that holds it."""

    name: str
    archive: Path


def plugin(say: Callable[[str], None] = print) -> Built:
    """The image of Dockerfile.plugin; raises MissingAsset when it cannot be built here."""
    return _built_by("plugin", say)


def extender(say: Callable[[str], None] = print) -> Built:
    """The image of Dockerfile.extender; raises MissingAsset when it cannot be built here."""
    return _built_by("extender", say)


def kube_scheduler(provided: assets.Assets) -> Built:
    """kube-scheduler on its PATH, as in the official image, and nothing else."""
    binary = provided.program("kube-scheduler")
    name = f"localhost/kube-scheduler:v{provided.version}"
    archive = _archive(name, _digest([provided.version.encode(), str(binary.stat().st_mtime_ns).encode()]))
    if not archive.exists():
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as tar:
            tar.add(binary, "bin/kube-scheduler", filter=_as_root)
        _whole(archive, lambda part: images.write_archive(part, name, layer.getvalue(), {"Cmd": []}))
    return Built(name, archive)


def base(say: Callable[[str], None] = print) -> Built:
    """Debian with Python 3.11, by debootstrap; raises MissingAsset."""
    assets.require(["debootstrap"])
    name = f"localhost/gangshare-base:{SUITE}"
    archive = _archive(name, _digest([SUITE.encode(), PACKAGES.encode(), *map(str.encode, NEEDLESS)]))
    if not archive.exists():
        say(f"making a Debian {SUITE} base image, once, in {archive.parent}")
        _whole(archive, lambda part: images.write_archive(part, name, _debian(), {"Cmd": ["/bin/sh"]}))
    return Built(name, archive)


def _debian() -> bytes:
    """A root file system, as a tar."""
    with tempfile.TemporaryDirectory(dir=_home(), prefix="base-") as folder:
        root, layer = Path(folder, "root"), Path(folder, "layer.tar")
        _run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(root), MIRROR)
        for needless in NEEDLESS:
            shutil.rmtree(root / needless, ignore_errors=True)
        _run("tar", "--create", "--numeric-owner", "--one-file-system", f"--file={layer}", f"--directory={root}", ".")
        return layer.read_bytes()


def _built_by(part: str, say: Callable[[str], None]) -> Built:
    assets.require(["buildah"])
    dockerfile, under = ROOT / f"Dockerfile.{part}", base(say)
    mark = _digest([under.archive.name.encode(), *_inputs(dockerfile)])
    name = f"localhost/gangshare-{part}:{mark}"
    archive = _archive(name, mark)
    if not archive.exists():
        say(f"building the image of {dockerfile.name}")
        _whole(archive, lambda to: _build(dockerfile, under, name, to))
    return Built(name, archive)


def _inputs(dockerfile: Path) -> Iterator[bytes]:
    """The Dockerfile, what it leaves out, and every file that it copies from here, names and contents."""
    yield dockerfile.read_bytes()
    yield (ROOT / ".dockerignore").read_bytes()
    for line in dockerfile.read_text().splitlines():
        words = line.split()
        if words[:1] == ["COPY"] and not words[1].startswith("--"):
            for copied in words[1:-1]:
                yield from _contents(ROOT / copied)


def _contents(path: Path) -> Iterator[bytes]:
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and "__pycache__" not in file.parts:
            yield str(file.relative_to(ROOT)).encode()
            yield file.read_bytes()


def _build(dockerfile: Path, under: Built, name: str, archive: Path) -> None:
    """Build in a storage of its own, which goes afterwards."""
    with tempfile.TemporaryDirectory(dir=_home(), prefix="build-") as folder:
        buildah = ["buildah", "--storage-driver=vfs", f"--root={folder}/root", f"--runroot={folder}/run"]
        options = ["--isolation=chroot", "--layers=false", f"--build-arg=BASE=docker-archive:{under.archive}"]
        options += _pip_volumes(Path(folder, "pip.conf"))
        _run(*buildah, "bud", *options, f"--file={dockerfile}", f"--tag={name}", str(ROOT))
        _run(*buildah, "push", name, f"docker-archive:{archive}:{name}")


def _pip_volumes(settings: Path) -> list[str]:
    """How pip reaches its index from this machine, and a cache of what it fetched; `settings` is written."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
    known = {key.rpartition(".")[2]: value.strip("'\"") for key, value in found.items()}
    settings.write_text("\n".join(["[global]", *(f"{key} = {known[key]}" for key in PIP_SETTINGS if key in known), ""]))
    cache = _home() / "pip"
    cache.mkdir(exist_ok=True)
    mounts = {settings: "/etc/pip.conf:ro", Path("/etc/ssl/certs"): "/etc/ssl/certs:ro", cache: "/root/.cache/pip"}
    return [f"--volume={source}:{target}" for source, target in mounts.items()]


def _home() -> Path:
    home = assets.cache() / "images"
    home.mkdir(parents=True, exist_ok=True)
    return home


def _archive(name: str, mark: str) -> Path:
    return _home() / f"{name.partition('/')[2].partition(':')[0]}-{mark}.tar"


def _whole(archive: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a file that gets its name when it is complete; older ones of the same image go."""
    part = archive.with_suffix(f".{os.getpid()}")
    part.unlink(missing_ok=True)
    try:
        write(part)
        for older in archive.parent.glob(f"{archive.stem.rpartition('-')[0]}-*.tar"):
            older.unlink(missing_ok=True)
        part.rename(archive)
    finally:
        part.unlink(missing_ok=True)


def _digest(parts: Iterable[bytes]) -> str:
    summed = hashlib.sha256()
    for part in parts:
        summed.update(hashlib.sha256(part).digest())
    return summed.hexdigest()[:12]


def _as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mode = 0o755
    return entry


def _run(*command: str) -> None:
    """Run a long step; raises MissingAsset with the end of what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        end = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise assets.MissingAsset(f"`{' '.join(command[:4])} …` failed:\n{end}")
