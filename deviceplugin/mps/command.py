"""`python -m deviceplugin.mps`: serves until a signal, with settings from flags and the environment."""

import asyncio

import msgspec
import pynvml
import structlog

from deviceplugin.mps import component, mounts
from deviceplugin.mps.mounts import MountError
from deviceplugin.mps.settings import Settings
from protos import flags, logs
from protos.contract.shared_settings import SettingsError

REFUSED = SettingsError, MountError
"""Errors that the user can correct; they end the process with code 2 and a message."""

log = structlog.get_logger()


def mps(settings: Settings) -> None:
    """Run MPS on the GPUs of this node that are given over to it, one control daemon for each."""
    logs.configure(settings.log_format, settings.log_level)
    log.info("settings", **msgspec.to_builtins(settings, enc_hook=str))
    mounts.prepare(settings.mps_dir, settings.shm_mib)
    asyncio.run(component.run(settings, pynvml))


command = flags.command(Settings, mps, REFUSED)
