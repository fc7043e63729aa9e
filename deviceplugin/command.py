"""`gangshare plugin`: serves until a signal, with the settings that the flags and the environment give."""

from __future__ import annotations

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
from deviceplugin.machine import Source, SourceError
from deviceplugin.nvml import NvmlSource
from deviceplugin.settings import Settings
from deviceplugin.strategies import Strategy
from protos import flags, logs
from protos.contract.shared_settings import SettingsError
from protos.kube.errors import CredentialsError

REFUSED = SettingsError, slices.SharingError, CredentialsError, SourceError, TooManyDevicesError
"""What a user mends; they end the process with code 2 and a sentence."""

log = structlog.get_logger()


def plugin(settings: Settings) -> None:
    """Offer the GPUs of this node to the kubelet, and give each container those that its pod's annotation names."""
    logs.configure(settings.log_format, settings.log_level)
    if settings.time_slicing_config is not None:
        slicing = slices.read(settings.time_slicing_config, settings.resources, settings.slices_per_gpu)
        settings = msgspec.structs.replace(settings, time_slicing=slicing)
    run(settings)


def run(known: Settings) -> None:
    """Serve until a signal; raises SourceError for an unusable profile, CredentialsError, TooManyDevicesError."""
    log.info("settings", **msgspec.to_builtins(known, enc_hook=str))
    source: Source = FakeSource(known.fake, known.node_name) if known.fake else NvmlSource(pynvml)
    if known.device_list_strategy is Strategy.CDI_CRI:
        source = CdiSource(source, known.cdi_kind, known.cdi_spec_dirs)
    try:
        grpc.aio.init_grpc_aio()  # else its poller ends with the last server's memory, and may wait for itself
        asyncio.run(process.run(known, source))
    finally:
        source.close()


command = flags.command(Settings, plugin, REFUSED)
