"""`gangshare usage`: measures until a signal, with settings from flags and the environment."""

import asyncio

import msgspec
import pynvml
import structlog

from deviceplugin.usage import run as process
from deviceplugin.usage.processes import FakeProcesses, NvmlProcesses, Processes
from deviceplugin.usage.settings import Settings
from protos import flags, logs
from protos.contract.shared_settings import SettingsError
from protos.files import FileError
from protos.kube.errors import CredentialsError

log = structlog.get_logger()


def usage(settings: Settings) -> None:
    """Measure what each container uses of the GPUs of this node, beside what it was promised."""
    logs.configure(settings.log_format, settings.log_level)
    log.info("settings", **msgspec.to_builtins(settings, enc_hook=str))
    source: Processes = FakeProcesses(settings.fake, settings.node_name) if settings.fake else NvmlProcesses(pynvml)
    try:
        asyncio.run(process.run(settings, source))
    finally:
        source.close()


command = flags.command(Settings, usage, (SettingsError, FileError, CredentialsError))
