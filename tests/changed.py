"""The test files of what changed since the main branch, one per line: for `make check`.

A changed test file is told itself, but for those of the real cluster; of any other changed module the unit tests are
told that import it directly.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UNIT, CLUSTER = Path("tests/unit"), Path("tests/cluster")


def git(*words: str) -> list[str]:
    """The lines that git answers; none where it refuses."""
    done = subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed() -> list[Path]:
    """Python files that differ from the main branch, or are new; those that are gone, too."""
    base = git("merge-base", "origin/main", "HEAD") or ["HEAD"]
    found = git("diff", "--name-only", "--no-renames", base[0]) + git("ls-files", "--others", "--exclude-standard")
    return sorted({Path(name) for name in found if name.endswith(".py")})


def module(path: Path) -> str:
    """How a file is imported."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(text: str) -> Iterator[str]:
    """All that may be a module of what the text imports."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names):
                yield from (each.name for each in names)
            case ast.ImportFrom(str(source), names, 0):
                yield source
                yield from (f"{source}.{each.name}" for each in names)


def selected(files: list[Path]) -> list[Path]:
    """The tests to run for these files."""
    tests = {file for file in files if file.name.startswith("test_") and CLUSTER not in file.parents}
    modules = {module(file) for file in files} - {module(file) for file in tests}
    if modules:
        for file in (ROOT / UNIT).rglob("test_*.py"):
            text = file.read_text()
            if any(name.rpartition(".")[2] in text for name in modules) and not modules.isdisjoint(imported(text)):
                tests.add(file.relative_to(ROOT))
    return sorted(file for file in tests if (ROOT / file).exists())


if __name__ == "__main__":
    print(*selected(changed()), sep="\n")
