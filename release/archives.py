"""Archives that come out the same, byte for byte, of the same files."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

SUMS = "SHA256SUMS"


def pack(to: Path, members: Mapping[str, Path], epoch: int) -> None:
    """Write a .tar.gz of files by their names inside. Owner, order and times are fixed; links are followed."""
    with (
        to.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, file in sorted(members.items()):
            content = file.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(content), epoch
            entry.mode = 0o755 if file.stat().st_mode & 0o100 else 0o644
            tar.addfile(entry, io.BytesIO(content))


def files_below(folder: Path) -> Iterator[Path]:
    """All files of a folder; links to folders are followed."""
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            yield from files_below(entry)
        else:
            yield entry


def sha256(file: Path) -> str:
    """The checksum of a file, in hexadecimal."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def write_sums(folder: Path) -> None:
    """Write SHA256SUMS of all other files, for `sha256sum --check`."""
    files = [file for file in files_below(folder) if file != folder / SUMS]
    lines = [f"{sha256(file)}  {file.relative_to(folder)}\n" for file in files]
    (folder / SUMS).write_text("".join(lines))
