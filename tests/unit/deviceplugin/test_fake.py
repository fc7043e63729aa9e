"""Machines described in YAML."""

import errno
from pathlib import Path

import pytest

from deviceplugin import fake
from deviceplugin.fake import FakeSource
from deviceplugin.machine import Machine, MemoryLimit, SourceError, Xid
from protos.contract import links, mig
from protos.files import FileError


def source(tmp_path: Path, text: str) -> FakeSource:
    path = tmp_path / "gpus.yaml"
    path.write_text(text)
    return FakeSource(str(path), "node-a")


def shipped(name: str) -> Machine:
    return FakeSource(name, "node-a").read()


@pytest.mark.parametrize(
    ("name", "models", "count"),
    [
        ("dgx-a100-80g", {"NVIDIA A100-SXM4-80GB"}, 8),
        ("hgx-h200", {"NVIDIA H200"}, 8),
        ("dgx1-v100", {"Tesla V100-SXM2-32GB"}, 8),
        ("dgx2-v100", {"Tesla V100-SXM3-32GB"}, 16),
        ("a100x8-pcie", {"NVIDIA A100 80GB PCIe"}, 8),
        ("t4x4", {"Tesla T4"}, 4),
        ("t4x1", {"Tesla T4"}, 1),
        ("h100-mig", {"NVIDIA H100 80GB HBM3"}, 8),
        ("h100-mig-dynamic", {"NVIDIA H100 80GB HBM3"}, 8),
        ("a10x2", {"NVIDIA A10"}, 2),
        ("mixed", {"NVIDIA A100-PCIE-40GB", "Tesla T4"}, 6),
    ],
)
def test_the_shipped_machines(name: str, models: set[str], count: int) -> None:
    machine = shipped(name)
    assert {gpu.model for gpu in machine.gpus} == models
    assert len(machine.gpus) == count
    assert len(machine.links) == count * (count - 1) // 2
    assert all(links.weight(kind) for _, _, kind in machine.links)


def test_every_shipped_machine_is_tested_here() -> None:
    assert len(fake.shipped()) == 11


def test_the_dgx1_has_six_nvlinks_a_gpu() -> None:
    count = dict.fromkeys(range(8), 0)
    for a, b, kind in shipped("dgx1-v100").links:
        for gpu in (a, b):
            count[gpu] += int(kind[2:]) if kind.startswith("NV") else 0
    assert set(count.values()) == {6}


def test_uuids_are_stable_and_differ_between_nodes() -> None:
    first, again, other = FakeSource("t4x4", "a"), FakeSource("t4x4", "a"), FakeSource("t4x4", "b")
    assert first.read() == again.read()
    assert not {gpu.uuid for gpu in first.read().gpus} & {gpu.uuid for gpu in other.read().gpus}


def test_what_a_gpu_does_not_say_comes_from_the_defaults_and_its_place(tmp_path: Path) -> None:
    machine = source(tmp_path, "defaults: {model: X, memMiB: 1024}\ngpus: [{}, {model: Y, minor: 7}]").read()
    first, second = machine.gpus
    assert (first.index, first.minor, first.model, first.mem_mib) == (0, 0, "X", 1024)
    assert (second.index, second.minor, second.model) == (1, 7, "Y")


def test_links_have_the_named_kinds_and_one_kind_for_the_rest(tmp_path: Path) -> None:
    machine = source(tmp_path, "gpus: [{}, {}, {}]\nlinks: {all: SYS, pairs: [[2, 0, NV4]]}").read()
    assert machine.links == ((0, 1, "SYS"), (0, 2, "NV4"), (1, 2, "SYS"))


@pytest.mark.parametrize(
    ("health", "trouble", "mig"), [("ok", "", False), ("sick:fell off", "fell off", False), ("mig", "", True)]
)
def test_health(tmp_path: Path, health: str, trouble: str, mig: bool) -> None:
    (gpu,) = source(tmp_path, f"gpus: [{{health: '{health}'}}]").read().gpus
    assert (gpu.trouble, gpu.mig) == (trouble, mig)


def test_a_gpu_that_is_gone_is_not_there(tmp_path: Path) -> None:
    machine = source(tmp_path, "gpus: [{health: gone}, {}]\nlinks: {all: PIX}").read()
    assert [gpu.index for gpu in machine.gpus] == [1]
    assert machine.links == ()


def test_an_error_is_reported_as_long_as_it_stands_there(tmp_path: Path) -> None:
    found = source(tmp_path, "gpus: [{uuid: GPU-x, xid: 79}]")
    assert found.poll(0) == found.poll(0) == [Xid("GPU-x", 79)]
    found.path.write_text("gpus: [{uuid: GPU-x}]")
    assert found.poll(0) == []


def test_a_machine_may_say_its_driver_its_toolkit_and_the_limits_of_control_groups(tmp_path: Path) -> None:
    text = 'driver: "615.41"\ntoolkit: 1.20.1\nlimits: {/a: {GPU-x: 4096}}\ngpus: [{uuid: GPU-x}]'
    made = source(tmp_path, text)
    machine = made.read()
    assert (machine.driver, machine.limits, machine.toolkit) == ("615.41", True, "1.20.1")
    assert made.memory_limit("GPU-x", "/a") == MemoryLimit(4096 * 2**20)
    assert made.memory_limit("GPU-x", "/b") is None
    assert made.memory_limit("GPU-y", "/a") is None


def test_a_machine_that_says_nothing_of_them_has_none_and_tells_no_limit(tmp_path: Path) -> None:
    made = source(tmp_path, "gpus: [{uuid: GPU-x}]")
    machine = made.read()
    assert (machine.driver, machine.limits, machine.toolkit) == ("", False, "")
    with pytest.raises(SourceError):
        made.memory_limit("GPU-x", "/a")


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    found = source(tmp_path, "gpus: [{}]")
    found.path.write_text("gpus: [{}, {}]")
    assert len(found.read().gpus) == 2


def test_a_file_spoilt_later_leaves_the_machine_as_it_was(tmp_path: Path) -> None:
    found = source(tmp_path, "gpus: [{}]")
    before = found.read()
    for spoilt in ("gpus: nonsense", "gpus: [{uuid: x}, {uuid: x}]", ""):
        found.path.write_text(spoilt)
        assert found.read() == before
    found.path.write_bytes(b"gpus: [{}, {}] # \xff\xfe")
    assert found.read() == before
    found.path.unlink()
    assert found.read() == before


def test_a_spoilt_file_is_told_until_it_is_mended(tmp_path: Path) -> None:
    found = source(tmp_path, "gpus: [{}]")
    assert found.trouble is None
    found.path.write_text("gpus: [{memory: 1}]")
    found.read()
    assert found.trouble is not None
    assert found.trouble.code == "ProfileUnreadable"
    assert "gpus.yaml: Object contains unknown field `memory`" in str(found.trouble)
    found.path.write_text("gpus: [{}, {}]")
    assert len(found.read().gpus) == 2
    assert found.trouble is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpus: nonsense", r"gpus.yaml: Expected `array`"),
        ("{}", r"missing required field `gpus`"),
        ("gpus: [{memMiB: much}]", r"Expected `int.*gpus\[0\].memMiB"),
        ("gpus: [{memory: 1}]", r"unknown field `memory`.*gpus\[0\]"),
        ("gpus: [{health: ill}]", r"regex.*gpus\[0\].health"),
        ("gpus: [{index: 1}, {}]", r"indexes \[1, 1\] are not distinct"),
        ("gpus: [{uuid: x}, {uuid: x}]", r"uuids \['x', 'x'\] are not distinct"),
        ("gpus: [{}, {}]\nlinks: {pairs: [[0, 5, NV1]]}", r"names 0 and 5: expected two of the GPUs \[0, 1\]"),
        ("gpus: [{}, {}]\nlinks: {pairs: [[0, 1, NV1], [1, 0, SYS]]}", r"names 0 and 1 twice: expected each pair once"),
        (
            "gpus: [{}]\nlinks: {all: nvlink}",
            r"kind 'nvlink': expected NV and a number of links, like NV12, or PIX, PXB",
        ),
        ("gpus: [{}, {}]\nlinks: {pairs: [[0, 1, NV]]}", r"kind 'NV': expected NV and a number of links"),
        ('gpus: [{cc: "8"}]', r"cc is '8': expected a compute capability in quotes, like \"8\.0\""),
        ("gpus: [{}]\ndefaults: {cc: sm_80}", r"cc is 'sm_80': expected a compute capability"),
        ("gpus: [", r"gpus.yaml: while parsing"),
        (f"gpus: [{'{},' * 257}]", r"GPUs of a node: 257, expected at most 256"),
        ("gpus: [{index: 70000}]", r"Expected `int` <= 65535.*gpus\[0\].index"),
        (f"gpus: [{{memMiB: {'9' * 5000}}}]", r"4300 digits"),
        (f"gpus: [{{memMiB: {'9' * 400}}}]", r"memMiB"),
        ("gpus: [{memMiB: .inf}]", r"memMiB"),
        (f"gpus: [{{model: {'m' * 300}}}]", r"length <= 256.*gpus\[0\].model"),
        (f"gpus: {'[' * 5000}", r"brackets within one another .*: 5000, expected at most 64"),
        (f"gpus: [{{}}] # {'x' * 300_000}", r"sharing configuration: 300013 bytes, expected at most 262144 bytes"),
        ("gpus: [{<<: {memMiB: 1}}]", r"constructor for the tag .*merge"),
        ("gpus: 2001-99-99", r"month must be in 1..12"),
    ],
)
def test_a_bad_profile_is_an_error_that_names_the_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(FileError, match=says):
        source(tmp_path, text)


def test_a_profile_that_cannot_be_read_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "machine.yaml"
    path.write_text("")

    def denied(_: Path, __: object = None) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(FileError, match=r"machine\.yaml: cannot be read \(Permission denied\)"):
        FakeSource(str(path), "node-a")


def test_an_unknown_profile_is_an_error_that_names_the_shipped_profiles() -> None:
    with pytest.raises(
        FileError, match="no profile 'dgx9': expected a YAML file or one of a100x8-pcie, a10x2, dgx-a100"
    ):
        FakeSource("dgx9", "n")


SPLIT = """
defaults: {model: A100, memMiB: 81050}
gpus:
  - {}
  - {health: mig, instances: [{profile: 1g.10gb}, {profile: 3g.40gb, place: 4, memMiB: 40000, health: "sick:ill"}]}
"""


class TestInstances:
    def read(self, tmp_path: Path, text: str, *, mig: bool = True) -> Machine:
        (tmp_path / "gpus.yaml").write_text(text)
        return FakeSource(str(tmp_path / "gpus.yaml"), "node-a", mig=mig).read()

    def test_they_are_read_if_they_are_wanted(self, tmp_path: Path) -> None:
        machine = self.read(tmp_path, SPLIT)
        assert [gpu.mig for gpu in machine.cards] == [False, True]
        one, two = machine.gpus[2:]
        assert (one.profile, one.mem_mib, one.parent, one.pci) == (
            "1g.10gb",
            9728,
            machine.gpus[1].uuid,
            "0000:02:00.0",
        )
        assert (two.profile, two.mem_mib, two.trouble, mig.shown(two.index)) == ("3g.40gb", 40000, "ill", "1:4")
        assert self.read(tmp_path, SPLIT, mig=False).gpus == machine.cards

    def test_their_names_stay_when_others_go(self, tmp_path: Path) -> None:
        two = self.read(tmp_path, SPLIT).gpus[3]
        less = SPLIT.replace("{profile: 1g.10gb}, ", "")
        assert self.read(tmp_path, less).gpus[2] == two
        assert self.read(tmp_path, SPLIT.replace("1g.10gb}", "1g.10gb, health: gone}")).gpus[2] == two

    def test_a_gpu_that_is_not_in_mig_mode_has_none(self, tmp_path: Path) -> None:
        assert len(self.read(tmp_path, SPLIT.replace("health: mig", "health: ok")).gpus) == 2
        sick = self.read(tmp_path, SPLIT.replace("health: mig", 'health: "sick:x"'))
        assert [(gpu.mig, gpu.trouble) for gpu in sick.gpus][1] == (True, "x")
        assert len(sick.gpus) == 4

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (("1g.10gb", "tiny"), "profile of an instance is 'tiny': expected one like 1g.10gb"),
            (("place: 4", "place: 0"), r"the places \[0, 0\] of the instances of GPU 1 are not distinct"),
            (("place: 4", "place: 16"), "place"),
            (("- {health", "- {index: 300, health"), "GPU 300 has instances: expected an index below 256"),
            (("  - {}\n", "  - {}\n" * 254), "GPUs of a node: 257, expected at most 256"),
        ],
    )
    def test_what_cannot_be_is_an_error(self, tmp_path: Path, change: tuple[str, str], says: str) -> None:
        with pytest.raises(FileError, match=says):
            self.read(tmp_path, SPLIT.replace(*change))


@pytest.mark.parametrize(
    ("gpu", "says"),
    [
        ("health: mig, memMiB: 81039, instances: [{profile: 1g.10gb}]", "GPU 0 is dynamic and has instances"),
        ("health: mig, memMiB: 81039, index: 32", "GPU 32 is dynamic: expected an index below 32"),
        ("health: mig, memMiB: 8191", "GPU 0 is dynamic and has 8191 MiB: expected 8192 to 10238976"),
        ("health: mig, memMiB: 10238977", "GPU 0 is dynamic and has 10238977 MiB"),
    ],
)
def test_what_a_gpu_cannot_be_of_which_instances_are_made(tmp_path: Path, gpu: str, says: str) -> None:
    with pytest.raises(FileError, match=says):
        source(tmp_path, f"gpus: [{{dynamic: true, {gpu}}}]")
