"""`python -m deviceplugin.limits`: serves until a signal, with settings from flags and the environment."""

import asyncio

import msgspec
import pynvml
import structlog

from deviceplugin.limits import serve
from deviceplugin.limits.helper import Helper
from deviceplugin.limits.nvml import NvmlDriver
from deviceplugin.limits.settings import Settings
from protos import flags, logs
from protos.contract.shared_settings import SettingsError

log = structlog.get_logger()


def limits(settings: Settings) -> None:
    """Set memory limits of NVIDIA's driver on control groups of pods, as this node's plugin asks."""
    logs.configure(settings.log_format, settings.log_level)
    log.info("settings", **msgspec.to_builtins(settings, enc_hook=str))
    asyncio.run(serve.run(settings.socket, Helper(NvmlDriver(pynvml), settings.cgroup_root)))


command = flags.command(Settings, limits, (SettingsError,))
