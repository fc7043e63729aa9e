"""The two files between the plugin and the component."""

from pathlib import Path

import pytest

from deviceplugin.mps import exchange
from deviceplugin.mps.exchange import Holders, Process, Served, State
from protos.contract.bounds import MPS_FILE
from protos.files import FileError
from tests.unit.deviceplugin.mps.conftest import a_holder


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert exchange.read_holders(tmp_path) is None
    assert exchange.read_state(tmp_path) is None
    holders = Holders(v=1, holders=(a_holder(mem_mib=1, percent=100, ends=1.5), a_holder("q", mps=False)))
    served = Served(phase="wedged", why="x", admitted={"p/main": "/a"}, processes=(Process(7, 8),))
    state = State(v=1, beat=exchange.now(), protocol=3, gpus={"GPU-0": served})
    exchange.write(tmp_path, holders)
    exchange.write(tmp_path, state)
    assert exchange.read_holders(tmp_path) == holders
    assert exchange.read_state(tmp_path) == state
    assert sorted(file.name for file in tmp_path.iterdir()) == ["holders.json", "state.json"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"v": 2, "holders": []}',
        '{"v": 1, "holders": [{"pod": "p", "container": "c", "gpu": "../../etc"}]}',
        '{"v": 1, "holders": [{"pod": "p", "container": "c", "gpu": "GPU-0", "percent": 101}]}',
        '{"v": 1, "holders": [{"pod": "p", "container": "c", "gpu": "GPU-0", "memMib": 1}]}',
        '{"v": 1, "holders": ' + "[" * 5000,
        " " * (MPS_FILE.most + 1),
    ],
    ids=lambda text: text[:60],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / exchange.HOLDERS).write_text(text)
    with pytest.raises(FileError, match=r"holders\.json"):
        exchange.read_holders(tmp_path)


@pytest.mark.parametrize("process", ["[1, 5]", "[-1, 5]", "[0, 5]", '["7", 5]', "[7]"])
def test_no_process_is_ended_by_a_wrong_number(tmp_path: Path, process: str) -> None:
    gpus = f'{{"GPU-0": {{"phase": "serving", "processes": [{process}]}}}}'
    (tmp_path / exchange.STATE).write_text(f'{{"v": 1, "beat": 0, "protocol": 2, "gpus": {gpus}}}')
    with pytest.raises(FileError):
        exchange.read_state(tmp_path)
