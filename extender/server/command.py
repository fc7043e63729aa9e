"""`gangshare extender`: serves until a signal, with settings from flags and the environment."""

import structlog
import typer
import uvloop

from extender.server import run
from extender.settings import Settings
from protos import flags, logs
from protos.contract.shared_settings import SettingsError
from protos.kube.errors import CredentialsError

REFUSED = SettingsError, CredentialsError
"""Errors that users can correct: the process ends with code 2 and a sentence. Others are logged in full, code 1."""


def extender(settings: Settings) -> None:
    """Answer kube-scheduler: which node and which GPUs a pod gets."""
    logs.configure(settings.log_format, settings.log_level)
    try:
        uvloop.run(run.serve(settings))
    except REFUSED:
        raise
    except Exception as error:
        structlog.get_logger(__name__).exception("extender_broke")
        raise typer.Exit(1) from error


command = flags.command(Settings, extender, REFUSED)
