"""`gangshare plugin`: serves until a signal, with settings from flags and the environment."""

import asyncio

import grpc.aio
import msgspec
import pynvml
import structlog

from deviceplugin import plugin as process
from deviceplugin import slices
from deviceplugin.cdi import CdiSource
from deviceplugin.devices import TooManyDevicesError
from deviceplugin.fake import FakeSource
from deviceplugin.machine import Source
from deviceplugin.mig.strategy import Strategy
from deviceplugin.mps.level import MpsSource
from deviceplugin.nvml import NvmlSource
from deviceplugin.settings import Settings
from deviceplugin.usage.processes import FakeProcesses, NvmlProcesses, Processes
from protos import flags, logs
from protos.contract.shared_settings import SettingsError
from protos.files import FileError
from protos.kube.errors import CredentialsError

REFUSED = SettingsError, FileError, CredentialsError, TooManyDevicesError
"""Errors that the user can correct; they end the process with code 2 and a message."""

log = structlog.get_logger()


def plugin(settings: Settings) -> None:
    """Offer the GPUs of this node to the kubelet, and give each container the GPUs of its pod's annotation."""
    logs.configure(settings.log_format, settings.log_level)
    if settings.time_slicing_config is not None:
        slicing = slices.read(settings.time_slicing_config, settings.resources, settings.slices_per_gpu)
        settings = msgspec.structs.replace(settings, time_slicing=slicing)
    log.info("settings", **msgspec.to_builtins(settings, enc_hook=str))
    mig = settings.mig is not Strategy.NONE
    source: Source = NvmlSource(pynvml, mig=mig)
    processes: Processes = NvmlProcesses(pynvml)
    if settings.fake:
        source = FakeSource(settings.fake, settings.node_name, mig=mig)
        processes = FakeProcesses(settings.fake, settings.node_name)
    if settings.device_list_strategy.by_cdi:
        source = CdiSource(source, settings.cdi_kind, settings.cdi_spec_dirs)
    if settings.mps_dir is not None:
        source = MpsSource(source, settings.mps_dir)
    try:
        grpc.aio.init_grpc_aio()  # otherwise its poller ends with the last server, and may wait for itself
        asyncio.run(process.run(settings, source, processes))
    finally:
        processes.close()
        source.close()


command = flags.command(Settings, plugin, REFUSED)
