"""Generates the Python code of the .proto files of this package; the code is checked in beside them.

`python -m protos.generate` rewrites the code; with `--check` it only reports differences, as errors.
protoc runs in the repository's root, so that generated imports read `from protos…`.
"""

import argparse
import difflib
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent
GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


def generate(into: Path) -> None:
    """Write the generated code of every .proto file below `into`, at the file's path in the repository.

    Ends the program if a tool is missing, or if protoc fails.
    """
    try:
        from grpc_tools import protoc
    except ImportError as error:
        raise SystemExit("grpcio-tools is missing: install the dev dependency group") from error
    plugin = shutil.which("protoc-gen-mypy_grpc", path=sysconfig.get_path("scripts"))
    if plugin is None:
        raise SystemExit("protoc-gen-mypy_grpc is missing: install the dev dependency group (mypy-protobuf)")
    messages = [f"--python_out={into}", f"--pyi_out={into}"]
    services = [f"--grpc_python_out={into}", f"--plugin=protoc-gen-mypy_grpc={plugin}", f"--mypy_grpc_out=quiet:{into}"]
    for file in sorted(PACKAGE.rglob("*.proto")):
        outputs = messages + (services if "\nservice " in file.read_text() else [])
        status = protoc.main(["protoc", f"-I{ROOT}", *outputs, str(file)])
        if status != 0:
            raise SystemExit(f"protoc ended with status {status} for {file.relative_to(ROOT)}")


def generated(below: Path) -> dict[Path, str]:
    """The generated files of this package in a tree, by relative path."""
    folder = below / PACKAGE.relative_to(ROOT)
    return {file.relative_to(below): file.read_text() for form in GENERATED for file in folder.rglob(form)}


def differences(fresh: dict[Path, str], present: dict[Path, str]) -> list[str]:
    """One line for each missing, surplus or stale file."""
    lines = []
    for path in sorted(fresh.keys() | present.keys()):
        if path not in present:
            lines.append(f"{path}: missing")
        elif path not in fresh:
            lines.append(f"{path}: left over, no .proto file makes it")
        elif fresh[path] != present[path]:
            marks = [line[0] for line in difflib.ndiff(present[path].splitlines(), fresh[path].splitlines())]
            lines.append(f"{path}: stale, {marks.count('+')} lines to add and {marks.count('-')} to remove")
    return lines


def check(root: Path = ROOT) -> list[str]:
    """The differences between the code below `root` and the .proto files; empty if it is fresh."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        return differences(generated(Path(folder)), generated(root))


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 1 for stale code, else 0."""
    parser = argparse.ArgumentParser(prog="python -m protos.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the code checked in is stale")
    if not parser.parse_args(arguments).check:
        generate(ROOT)
        return 0
    stale = check()
    for line in stale:
        print(line, file=sys.stderr)
    if stale:
        print("run python -m protos.generate and commit the result", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
