"""MIG profiles, their resources, and the indexes of instances."""

from __future__ import annotations

import msgspec
import pytest

from protos.contract import inventory, mig, names
from protos.contract.bounds import MIG_PROFILE
from protos.contract.inventory import Gpu, Inventory


@pytest.mark.parametrize(
    ("name", "slices", "memory", "resource"),
    [
        ("1g.10gb", 1, 10, "nvidia.com/mig-1g.10gb"),
        ("7g.80gb", 7, 80, "nvidia.com/mig-7g.80gb"),
        ("1c.3g.40gb", 1, 40, "nvidia.com/mig-1c.3g.40gb"),
        ("1g.10gb+me", 1, 10, "nvidia.com/mig-1g.10gb.me"),
        ("1g.24gb+me.all", 1, 24, "nvidia.com/mig-1g.24gb.me.all"),
        ("1g.24gb-me", 1, 24, "nvidia.com/mig-1g.24gb-me"),
    ],
)
def test_a_profile_is_read_from_its_name_and_from_its_resource(
    name: str, slices: int, memory: int, resource: str
) -> None:
    found = mig.profile(name)
    assert found == mig.Profile(name, slices, memory)
    assert found.resource == resource
    assert mig.of_resource(resource) == found


@pytest.mark.parametrize(
    "name", ["", "1g", "10gb", "0g.5gb", "8g.80gb", "1g.5GB", "1g.10gb+", "all-disabled", "1g.10gb+" + "x" * 99]
)
def test_other_names_are_no_profiles(name: str) -> None:
    assert mig.profile(name) is None
    assert mig.of_resource(mig.PREFIX + name) is None
    assert mig.of_resource("nvidia.com/gpu") is None


def test_an_index_tells_the_gpu_of_an_instance() -> None:
    places = {mig.index(gpu, place): (gpu, place) for gpu in (0, 1, 7, 255) for place in (0, 6, 15)}
    assert len(places) == 12
    assert {index: (mig.gpu_of(index), mig.shown(index)) for index in places} == {
        index: (gpu, f"{gpu}:{place}") for index, (gpu, place) in places.items()
    }
    assert (mig.gpu_of(3), mig.shown(3)) == (None, "3")
    for gpu, place in ((256, 0), (0, 16), (-1, 0)):
        with pytest.raises(ValueError, match="expected a GPU below 256"):
            mig.index(gpu, place)


def of(*gpus: Gpu) -> Inventory:
    return Inventory(v=1, unit_mib=1024, slices_per_gpu=100, gpus=gpus)


def test_only_an_instance_writes_a_profile() -> None:
    gpu = Gpu(index=0, uuid="GPU-a", mem=79, health="mig")
    instance = Gpu(index=mig.index(0, 1), uuid="MIG-a", mem=9, mig="1g.10gb")
    text = inventory.encode(of(gpu, instance))
    assert text.count('"mig":') == 1
    assert inventory.decode(text) == of(gpu, instance)
    assert (gpu.profile, instance.profile) == ("", "1g.10gb")


@pytest.mark.parametrize(("index", "profile"), [(0, "1g.10gb"), (256, "huge"), (256, "x" * (MIG_PROFILE.most + 1))])
def test_an_instance_that_cannot_be_one_is_refused(index: int, profile: str) -> None:
    text = inventory.encode(of(Gpu(index=256, uuid="MIG-a", mem=9, mig="1g.10gb")))
    wrong = text.replace('"index":256', f'"index":{index}').replace("1g.10gb", profile)
    with pytest.raises((ValueError, msgspec.ValidationError)):
        inventory.decode(wrong)


@pytest.mark.parametrize(
    ("resource", "ours"),
    [("nvidia.com/gpu", True), ("gangshare.io/gpu-mem", True), ("nvidia.com/mig-1g.10gb", True), ("cpu", False)],
)
def test_resources_of_gpus_and_instances_are_ours(resource: str, ours: bool) -> None:
    assert names.DEFAULT_RESOURCES.has(resource) is ours
