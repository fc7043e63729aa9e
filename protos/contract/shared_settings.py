"""Settings that the extender and all plugins of a cluster share."""

from __future__ import annotations

from typing import Annotated

import msgspec

from protos.contract import names, quantity
from protos.contract.flag import Flag


class SettingsError(ValueError):
    """An invalid setting; the message has its flag, its value and what was expected."""


class SharedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Names and units of GPU resources, the same in the whole cluster."""

    gpushare: Annotated[
        bool, Flag("Serve gpushare's resource names, annotations, HTTP paths and environment variables, too.")
    ] = False
    resource_mem: Annotated[
        str,
        Flag(f"Name of the resource for GPU memory.  [default: {names.GPU_MEM}; with --gpushare {names.ALIYUN_MEM}]"),
    ] = ""
    resource_slice: Annotated[str, Flag("Name of the resource for time slices.")] = names.GPU_SLICE
    resource_whole: Annotated[str, Flag("Name of the resource for whole GPUs.")] = names.WHOLE_GPU
    resource_shared: Annotated[str, Flag("Name of the resource for replicas of GPUs.")] = names.SHARED_GPU
    unit_mib: Annotated[
        int,
        Flag(
            "Unit of GPU memory: GiB, MiB, a multiple like 256MiB, or a number of MiB.",
            quantity.memory_unit,
            "UNIT",
            "GiB",
            name="memory_unit",
        ),
    ] = names.DEFAULT_UNIT_MIB
    slices_per_gpu: Annotated[int, Flag("Time slices per GPU.")] = names.DEFAULT_SLICES_PER_GPU

    def __post_init__(self) -> None:
        for flag, value in (("--memory-unit", self.unit_mib), ("--slices-per-gpu", self.slices_per_gpu)):
            if value < 1:
                raise SettingsError(f"{flag} is {value}: expected 1 or more")
        resources = self.resources.all
        if len(set(resources)) < len(resources):
            raise SettingsError(f"the --resource-* flags are {', '.join(resources)}: expected different names")

    @property
    def resources(self) -> names.Resources:
        """The extended resources that pods request."""
        return names.Resources(
            mem=self.resource_mem or (names.ALIYUN_MEM if self.gpushare else names.GPU_MEM),
            slice=self.resource_slice,
            whole=self.resource_whole,
            shared=self.resource_shared,
            unit_mib=self.unit_mib,
        )
