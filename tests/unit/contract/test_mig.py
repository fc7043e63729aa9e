"""MIG profiles, their resources, and the indexes of instances."""

from __future__ import annotations

import msgspec
import pytest

from protos.contract import inventory, mig, names
from protos.contract.bounds import GPU_INDEX, MIG_PROFILE
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


def test_a_place_is_read_from_its_name() -> None:
    place = mig.Place("GPU-1c", "1g.10gb+me", 4, 1)
    assert place.name == "GPU-1c/1g.10gb+me@4:1"
    assert mig.place(place.name) == place
    assert mig.place(mig.Place("GPU-1c", "7g.80gb", 0, 8).name) == mig.Place("GPU-1c", "7g.80gb", 0, 8)


@pytest.mark.parametrize(
    "name",
    ["", "GPU-1c", "MIG-1c", "GPU-1c/1g.10gb", "GPU-1c/1g.10gb@3", "GPU-1c/9x@0:1", "GPU-1c/3g.40gb@5:4",
     "/1g.10gb@0:1",
     "GPU-1c/1g.10gb@8:1", "GPU-1c/1g.10gb@0:0", "a/b/1g.10gb@0:1", "x" * 300 + "/1g.10gb@0:1"],
)  # fmt: skip
def test_other_names_are_no_places(name: str) -> None:
    assert mig.place(name) is None


def test_places_overlap_if_they_share_a_memory_slice_of_one_gpu() -> None:
    whole, left, right = (
        mig.Place("a", "7g.80gb", 0, 8),
        mig.Place("a", "3g.40gb", 0, 4),
        mig.Place("a", "3g.40gb", 4, 4),
    )
    assert whole.overlaps(left) and left.overlaps(whole) and left.overlaps(left)  # noqa: PT018
    assert not left.overlaps(right) and not right.overlaps(left)  # noqa: PT018
    assert not left.overlaps(mig.Place("b", "3g.40gb", 0, 4))


def test_the_index_of_a_place_is_its_own_and_tells_the_gpu() -> None:
    every = [
        (gpu, start, size, rank)
        for gpu in (0, 1, 31) for start in range(8) for size in range(1, 9 - start) for rank in (0, 15)
    ]  # fmt: skip
    indexes = {mig.place_index(*each): each for each in every}
    assert len(indexes) == len(every)
    for index, (gpu, start, size, _) in indexes.items():
        assert mig.ON_DEMAND <= index <= GPU_INDEX.most
        assert mig.gpu_of(index) == gpu
        assert mig.shown(index) == (f"{gpu}@{start}" if size == 1 else f"{gpu}@{start}-{start + size - 1}")
    for wrong in ((32, 0, 1, 0), (0, 8, 1, 0), (0, 0, 0, 0), (0, 0, 9, 0), (0, 0, 1, 16), (-1, 0, 1, 0)):
        with pytest.raises(ValueError, match="expected a GPU below 32"):
            mig.place_index(*wrong)
