"""What the control program prints, read back: nothing of it is believed beyond its form."""

from __future__ import annotations

from pathlib import Path

import pytest

from deviceplugin.mps import control, exchange, v2
from deviceplugin.mps.control import Client, Control, ControlError, Server
from deviceplugin.mps.v2 import V2
from deviceplugin.mps.v3 import V3
from tests.unit.deviceplugin.mps.conftest import a_holder


class Said(Control):
    """Answers by command."""

    def __init__(self, answers: dict[str, str]) -> None:
        super().__init__("control", Path("/pipes"), Path("/logs"), "GPU-0")
        self.answers, self.asked = answers, list[str]()

    async def ask(self, *arguments: str, command: str = "") -> str:
        words = command or " ".join(arguments[2:])
        self.asked.append(words)
        return self.answers.get(words, "")


def test_process_ids_are_numbers_and_nothing_else() -> None:
    assert v2.numbers("12 13\n14\n") == [12, 13, 14]
    assert v2.numbers("") == []
    for said in ("Cannot find MPS control daemon process", "12 -3", "1" * 30, "١٢"):
        with pytest.raises(ControlError, match="expected process IDs"):
            v2.numbers(said)


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ([], (16_000, 100)),
        ([(2048, 25)], (2048, 25)),
        ([(2048, 25), (4096, 10)], (4096, 25)),
        ([(2048, 25), (0, 10)], (16_000, 25)),
        ([(2048, 0)], (2048, 100)),
        ([(90_000, 50)], (16_000, 50)),
    ],
)
def test_a_server_is_limited_as_its_largest_holder(limits: list[tuple[int, int]], most: tuple[int, int]) -> None:
    holders = [a_holder(f"p{i}", mem_mib=mem, percent=percent) for i, (mem, percent) in enumerate(limits)]
    assert v2.ceiling(holders, 16_000) == most


async def test_the_states_of_servers_before_615() -> None:
    said = Said({"get_server_list": "7\n8\n9\n10", "get_server_status 7": "ACTIVE", "get_server_status 8": "FAULT\n"})
    said.answers["get_server_status 9"] = "INITIALIZING"
    servers = await V2(said, 1000).servers()
    assert servers == [
        Server("7", 7, True, False),
        Server("8", 8, False, True),
        Server("9", 9, False, False),
        Server("10", 10, True, False),
    ]


async def test_limits_are_set_anew_only_if_they_changed() -> None:
    said = Said({"get_server_list": "7"})
    commands = V2(said, 16_000)
    for _ in range(2):
        assert await commands.admit([a_holder(mem_mib=1024, percent=10)]) == {"p/main": "/pipes"}
    assert [words for words in said.asked if words.startswith("set_")] == [
        "set_default_active_thread_percentage 10",
        "set_default_device_pinned_mem_limit 0 1024M",
        "set_active_thread_percentage 7 10",
        "set_device_pinned_mem_limit 7 0 1024M",
    ]


async def test_the_tables_of_615() -> None:
    said = Said({"server list --format=csv,noheader": "gpu,0,48201,Ready,/run/nvidia-mps/gpu,GPU-a,GPU-b,-\n"})
    said.answers["client list --all --format=csv,noheader"] = "51,gpu,0,default,python a,b.py\n52,other,0,x,y\nx,gpu,0"
    commands = V3(said)
    servers = await commands.servers()
    assert servers == [Server("gpu", 48201, True, False)]
    assert await commands.clients(servers) == [Client(51, "gpu")]
    said.answers["server list --format=csv,noheader"] = "some error"
    with pytest.raises(ControlError, match="expected rows of 4 values"):
        await commands.servers()


LIST = "namespace list --server=gpu --format=csv,noheader"


async def test_a_container_whose_limits_are_not_in_force_is_not_admitted() -> None:
    holder = a_holder(mem_mib=4096, percent=50)
    name = exchange.namespace(holder.key)
    said = Said({LIST: "default,gpu,Ready,-,100.00,0,/x\n"})
    assert await V3(said).admit([holder]) == {}, "the daemon does not list it"
    said.answers[LIST] = f"{name},gpu,Ready,4G,60.00,0,/x\n"
    assert await V3(said).admit([holder]) == {}, "its percentage is another one"
    said.answers[LIST] = f"{name},gpu,Ready,4G,50.00,0,/x\n"
    assert await V3(said).admit([holder]) == {holder.key: f"/pipes/gpu/{name}"}


async def test_namespaces_of_containers_that_left_are_deleted_and_no_others() -> None:
    gone = exchange.namespace("gone/main")
    said = Said({LIST: f"default,gpu,Ready,-,100.00,0,/x\noperators,gpu,Ready,-,-,0,/x\n{gone},gpu,Ready,-,-,0,/x\n"})
    assert await V3(said).admit([]) == {}
    assert said.asked == [LIST, f"namespace delete {gone} --server=gpu --force"]


async def test_a_container_without_limits_gets_a_namespace_without() -> None:
    holder = a_holder()
    said = Said({})
    await V3(said).admit([holder])
    assert said.asked == [LIST, f"namespace create {exchange.namespace(holder.key)} --server=gpu", LIST]


def test_names_of_namespaces_are_lowercase_and_short() -> None:
    name = exchange.namespace("0f3e8c1a-1111-2222-3333-444455556666/Main_Container")
    assert len(name) == 17
    assert name.isalnum()
    assert name == name.lower()


async def test_an_answer_without_end_and_a_program_that_is_missing_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = tmp_path / "endless"
    endless.write_text("#!/bin/sh\nexec yes\n")
    endless.chmod(0o755)
    with pytest.raises(ControlError, match="x: an answer of the MPS control program: "):
        await Control(str(endless), tmp_path, tmp_path, "GPU-0").ask("x")
    with pytest.raises(ControlError, match="cannot be run"):
        await Control(str(tmp_path / "none"), tmp_path, tmp_path, "GPU-0").ask("x")
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 60\n")
    silent.chmod(0o755)
    monkeypatch.setattr(control, "ANSWER_S", 0.1)
    with pytest.raises(ControlError, match=r"no answer to get_server_list in 0\.1 s"):
        await Control(str(silent), tmp_path, tmp_path, "GPU-0").ask(command="get_server_list")
