"""`python -m deviceplugin.partitioner`: serves until a signal, with settings from flags and the environment."""

import asyncio

import msgspec
import pynvml
import structlog

from deviceplugin import helper_socket
from deviceplugin.fake import FakeSource
from deviceplugin.partitioner import serve
from deviceplugin.partitioner.fake import FakeDriver
from deviceplugin.partitioner.journal import Journal
from deviceplugin.partitioner.nvml import NvmlDriver
from deviceplugin.partitioner.partitioner import Driver, Partitioner
from deviceplugin.partitioner.settings import Settings
from protos import flags, logs
from protos.contract.shared_settings import SettingsError
from protos.files import FileError

log = structlog.get_logger()


def partitioner(settings: Settings) -> None:
    """Make MIG instances when pods start and destroy them when pods have ended, as this node's plugin asks."""
    logs.configure(settings.log_format, settings.log_level)
    log.info("settings", **msgspec.to_builtins(settings, enc_hook=str))
    try:
        settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        journal = Journal(settings.state_dir)
    except OSError as error:
        raise SettingsError(f"--state-dir is {settings.state_dir}: expected a folder ({error.strerror})") from error
    driver: Driver = NvmlDriver(pynvml, settings.gpus)
    if settings.fake:
        driver = FakeDriver(FakeSource(settings.fake, settings.node_name), settings.gpus, settings.state_dir)
    asyncio.run(helper_socket.run(serve.server(settings.socket, Partitioner(driver, journal))))


command = flags.command(Settings, partitioner, (SettingsError, FileError))
