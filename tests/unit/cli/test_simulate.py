import builtins
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.unit.cli.run import Ran, gangshare

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,64000,1000,2,T4\nb,64000,1000,1,A10\n"
POD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
SHAPES = ((1, 500, ""), (1, 500, "T4"), (1, 1000, "A10"), (0, 0, ""), (1, 250, ""))


def rows(*shapes: tuple[int, int, str]) -> str:
    """A pod list of these numbers of GPUs, milli and models."""
    return POD + "".join(f"p{i},1000,10,{gpus},{milli},{models}\n" for i, (gpus, milli, models) in enumerate(shapes))


@pytest.fixture
def lists(tmp_path: Path) -> list[str]:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(rows(*SHAPES))
    return ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv")]


def simulated(capsys: pytest.CaptureFixture[str], lists: Sequence[str], *more: str) -> Ran:
    return gangshare(capsys, "simulate", "openb", *lists, *more)


@pytest.mark.parametrize("policy", ["random", "bestfit", "packing", "clustering", "dotprod", "fgd", "gangshare"])
def test_json_stands_alone_on_standard_output(
    capsys: pytest.CaptureFixture[str], lists: list[str], policy: str
) -> None:
    ran = simulated(capsys, lists, "--policy", policy, "--seed", "43", "--inflate", "110", "-o", "json")
    told = json.loads(ran.out)
    assert (ran.code, ran.err) == (0, "")
    assert list(told) == ["policy", "seed", "at", "curve"]
    assert (told["policy"], told["seed"], list(told["at"])) == (policy, 43, ["95", "100", "130"])
    assert [row[0] for row in told["curve"]] == list(range(len(told["curve"])))
    assert 100 < len(told["curve"]) <= 111
    assert told["at"] == {"95": told["curve"][95][1], "100": told["curve"][100][1], "130": None}


def test_by_default_130_percent_of_seed_42_come_to_our_engine(
    capsys: pytest.CaptureFixture[str], lists: list[str]
) -> None:
    told = simulated(capsys, lists, "-o", "json").out
    said = ("--policy", "gangshare", "--seed", "42", "--inflate", "130", "--list", "default", "-o", "json")
    assert told == simulated(capsys, lists, *said).out
    assert told != simulated(capsys, lists, "--inflate", "100", "-o", "json").out


def test_a_long_replay_says_how_far_it_is_on_standard_error(
    capsys: pytest.CaptureFixture[str], lists: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extender.cli.simulate.QUIET_S", 0.0)
    ran = simulated(capsys, lists, "--policy", "fgd", "--inflate", "100", "-o", "json")
    assert re.fullmatch(r"1 of \d+ pods have arrived\n", ran.err)
    assert json.loads(ran.out)


def test_the_text_shows_each_whole_percent_and_the_values(
    capsys: pytest.CaptureFixture[str], lists: list[str], tmp_path: Path
) -> None:
    (tmp_path / "pods.csv").write_text(rows(*[(1, 500, "")] * 4))
    lines = simulated(capsys, lists, "--policy", "bestfit", "--inflate", "100").out.splitlines()
    assert lines[0].split() == ["ARRIVED", "%", "ALLOCATED", "%", "FRAGMENTS", "%"]
    assert [line.split()[0] for line in lines[1:102]] == [str(column) for column in range(101)]
    assert lines[51].split() == ["50", "50.00", "0.00"]
    assert lines[-1] == "allocated at 95: 83.33 %, at 100: 100.00 %, at 130: never reached"


def test_node_names_are_dealt_out_anew_on_request(
    capsys: pytest.CaptureFixture[str], lists: list[str], tmp_path: Path
) -> None:
    """The first name is taken first, and whose that is decides whether there is room for who asks for an A10."""
    (tmp_path / "nodes.csv").write_text(NODES.replace("2,T4", "1,T4"))
    (tmp_path / "pods.csv").write_text(rows((1, 1000, ""), (1, 1000, "A10")))
    as_they_are, shuffled = [
        {simulated(capsys, lists, "--policy", "packing", "--inflate", "100", "--seed", str(seed), *more).out[-40:]
         for seed in range(12)}
        for more in ((), ("--shuffle-node-names",))
    ]  # fmt: skip
    assert len(as_they_are) == 1
    assert len(shuffled) == 2


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--pods", "absent.csv"), "error: cannot read absent.csv: No such file or directory"),
        (("--list", "gpushare40", "--pods", "NODELESS"), "error: the list has no pods of a kind"),
        (("--plot", "curve.pdf"), "error: the plot's file is 'curve.pdf': expected a name that ends in .png or .svg"),
        (("--inflate", "0.5"), "error: --inflate is 0.5: expected 1 to 1000"),
        (("--inflate", "nan"), "error: --inflate is nan: expected 1 to 1000"),
        (("--plot", "absent/curve.svg"), "error: the plot's file is 'absent/curve.svg': expected one in a folder that"),
    ],
)
def test_what_cannot_be_used_is_named(
    capsys: pytest.CaptureFixture[str], lists: list[str], tmp_path: Path, more: Sequence[str], sentence: str
) -> None:
    (tmp_path / "whole.csv").write_text(rows((1, 1000, "")))
    more = [str(tmp_path / "whole.csv") if word == "NODELESS" else word for word in more]
    ran = simulated(capsys, lists, "--policy", "fgd", *more)
    assert ran.code == 1
    assert ran.err.startswith(sentence)
    assert len(ran.err.splitlines()) == 1
    assert ran.out == ""


def test_a_bad_row_is_named_with_file_and_line(
    capsys: pytest.CaptureFixture[str], lists: list[str], tmp_path: Path
) -> None:
    (tmp_path / "pods.csv").write_text(rows(*SHAPES).replace("p2,1000,10,1,1000", "p2,1000,10,9x,1000"))
    ran = simulated(capsys, lists, "-o", "json")
    assert (ran.code, ran.out) == (1, "")
    path = tmp_path / "pods.csv"
    assert ran.err == f"error: {path}, line 4: num_gpu is '9x': expected a whole number from 0 to 256\n"


@pytest.mark.parametrize(("name", "begins"), [("curve.png", b"\x89PNG"), ("curve.svg", b"<?xml")])
def test_the_curve_is_drawn(
    capsys: pytest.CaptureFixture[str], lists: list[str], tmp_path: Path, name: str, begins: bytes
) -> None:
    plot = tmp_path / name
    ran = simulated(capsys, lists, "--policy", "fgd", "-o", "json", "--plot", str(plot))
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["policy"] == "fgd"
    assert plot.read_bytes().startswith(begins)


def test_the_same_curve_is_the_same_picture(
    capsys: pytest.CaptureFixture[str], lists: list[str], tmp_path: Path
) -> None:
    for name in ("a.svg", "b.svg"):
        simulated(capsys, lists, "--policy", "fgd", "--plot", str(tmp_path / name))
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.fixture
def without_matplotlib() -> Iterator[None]:
    real = builtins.__import__

    def refused(name: str, *args: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ImportError("No module named 'matplotlib'")
        return real(name, *args, **more)

    with mock.patch.object(builtins, "__import__", refused):
        yield


@pytest.mark.usefixtures("without_matplotlib")
def test_without_matplotlib_only_the_plot_is_refused(
    capsys: pytest.CaptureFixture[str], lists: list[str], tmp_path: Path
) -> None:
    ran = simulated(capsys, lists, "--policy", "fgd", "--plot", str(tmp_path / "curve.svg"))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "error: a plot needs matplotlib: pip install 'gangshare[plot]'\n"
    assert simulated(capsys, lists, "--policy", "fgd", "-o", "json").code == 0
