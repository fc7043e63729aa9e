"""Settings that the extender and all plugins of a cluster share."""

from __future__ import annotations

from typing import Annotated

import msgspec

from protos.contract import names, quantity
from protos.contract.flag import Flag


class SettingsError(ValueError):
    """An invalid setting; the message has its name, its value and what was expected."""


class SharedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Names and units of GPU resources, the same in the whole cluster."""

    gpushare: Annotated[
        bool, Flag("Serve as gpushare does too: its resource names, annotations, paths and environment.")
    ] = False
    resource_mem: Annotated[
        str, Flag(f"GPU memory in units.  [default: {names.GPU_MEM}; with --gpushare {names.ALIYUN_MEM}]")
    ] = ""
    resource_slice: Annotated[str, Flag("Time slices.")] = names.GPU_SLICE
    resource_whole: Annotated[str, Flag("Whole GPUs.")] = names.WHOLE_GPU
    resource_shared: Annotated[str, Flag("Replicas of a GPU.")] = names.SHARED_GPU
    unit_mib: Annotated[
        int,
        Flag(
            "The unit of GPU memory: GiB, MiB, a multiple like 256MiB, or a number of MiB.",
            quantity.memory_unit,
            "UNIT",
            "GiB",
            name="memory_unit",
        ),
    ] = names.DEFAULT_UNIT_MIB
    slices_per_gpu: Annotated[int, Flag("Time slices per GPU.")] = names.DEFAULT_SLICES_PER_GPU

    def __post_init__(self) -> None:
        for name in ("unit_mib", "slices_per_gpu"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} is {getattr(self, name)}: expected 1 or more")
        resources = self.resources.all
        if len(set(resources)) < len(resources):
            raise SettingsError(f"resources are {', '.join(resources)}: expected different names")

    @property
    def resources(self) -> names.Resources:
        """The extended resource names that pods request."""
        return names.Resources(
            mem=self.resource_mem or (names.ALIYUN_MEM if self.gpushare else names.GPU_MEM),
            slice=self.resource_slice,
            whole=self.resource_whole,
            shared=self.resource_shared,
        )
