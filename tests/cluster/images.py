"""Two container images without a registry or a builder: a static busybox, and a pause image of the same layer."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
from pathlib import Path

PAUSE = "localhost/pause:1"
BUSYBOX = "localhost/busybox:1"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def provide(folder: Path) -> tuple[Path, ...]:
    """Docker archives of PAUSE and BUSYBOX, kept in `folder` per busybox binary."""
    binary = _busybox()
    mark = hashlib.sha256(binary).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    archives = []
    for image, start in ((PAUSE, {"Entrypoint": ["/bin/sleep", "infinity"]}), (BUSYBOX, {"Cmd": ["/bin/sh"]})):
        archive = folder / f"{image.split('/')[1].replace(':', '-')}-{mark}.tar"
        if not archive.exists():
            part = archive.with_suffix(f".{os.getpid()}")
            write_archive(part, image, _layer(binary), start)
            part.rename(archive)
        archives.append(archive)
    return tuple(archives)


def _busybox() -> bytes:
    return Path(shutil.which("busybox") or "/bin/busybox").read_bytes()


def with_environment(path: Path, image: str, **env: str) -> Path:
    """Write an archive of a busybox image that sets these variables."""
    said = ["PATH=/bin", *(f"{key}={value}" for key, value in env.items())]
    write_archive(path, image, _layer(_busybox()), {"Cmd": ["/bin/sh"], "Env": said})
    return path


def _layer(binary: bytes) -> bytes:
    """A root file system: busybox under all its names, and the folders programs expect."""
    applets = subprocess.run(["busybox", "--list"], check=True, capture_output=True, text=True).stdout.split()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777)):
            tar.addfile(_entry(folder, tarfile.DIRTYPE, mode))
        _add(tar, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n", 0o644)
        _add(tar, "bin/busybox", binary, 0o755)
        for applet in applets:
            if applet != "busybox":
                link = _entry(f"bin/{applet}", tarfile.SYMTYPE, 0o777)
                link.linkname = "busybox"
                tar.addfile(link)
    return buffer.getvalue()


def write_archive(path: Path, image: str, layer: bytes, start: dict[str, list[str]]) -> None:
    """Write the `docker save` format: manifest.json, one configuration that begins as `start` says, one layer."""
    config = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], **start},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [image], "Layers": ["layer.tar"]}]
    with tarfile.open(path, mode="w") as tar:
        _add(tar, "manifest.json", json.dumps(manifest).encode(), 0o644)
        _add(tar, "config.json", json.dumps(config).encode(), 0o644)
        _add(tar, "layer.tar", layer, 0o644)


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, mode
    return entry


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = _entry(name, tarfile.REGTYPE, mode)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
