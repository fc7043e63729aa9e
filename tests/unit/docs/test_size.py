"""The product stays readable: modules, constructors and classes have a size that one takes in at a glance."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.gangshare import ROOT

LINES, PARAMETERS, METHODS = 300, 7, 20
PRODUCT = ("extender", "deviceplugin", "gangfilter", "protos", "release")
GENERATED = ("_pb2.py", "_pb2_grpc.py", "_pb2.pyi")
MODULES = sorted(
    path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py") if not path.name.endswith(GENERATED)
)


def too_large(path: Path) -> Iterator[str]:
    text = path.read_text()
    if (lines := len(text.splitlines())) > LINES:
        yield f"{lines} lines, expected at most {LINES}"
    for kind in ast.walk(ast.parse(text)):
        if not isinstance(kind, ast.ClassDef):
            continue
        methods = [each for each in kind.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        public = {each.name for each in methods if not each.name.startswith("_")}
        if len(public) > METHODS:
            yield f"class {kind.name} has {len(public)} public methods, expected at most {METHODS}"
        for each in methods:
            given = [*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs]
            if each.name == "__init__" and len(given) - 1 > PARAMETERS:
                yield f"the constructor of {kind.name} takes {len(given) - 1}, expected at most {PARAMETERS}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_no_larger_than_one_reads_at_once(path: Path) -> None:
    assert list(too_large(path)) == []


def test_what_is_too_large_is_found(tmp_path: Path) -> None:
    methods = "".join(f"    def m{number}(self): ...\n" for number in range(21))
    module = tmp_path / "module.py"
    module.write_text(f"class A:\n    def __init__(self, a, b, c, d, e, f, g, *, h): ...\n{methods}" + "\n" * 280)
    assert [found.split(",")[0] for found in too_large(module)] == [
        "303 lines",
        "class A has 21 public methods",
        "the constructor of A takes 8",
    ]
