"""Traces of pods, from first sight to bound, for a collector of OpenTelemetry (`--traces-endpoint`)."""

from __future__ import annotations

from extender.engine.cycle.engine import Engine
from extender.server.observer import Observer
from extender.settings import Settings
from protos.contract.shared_settings import SettingsError


def observer(engine: Engine, settings: Settings) -> Observer:
    """Who follows the pods of this engine; raises SettingsError if the library is missing."""
    if not settings.traces_endpoint:
        return Observer()
    try:
        from extender.server.traces.export import traces  # its library is loaded only if it is needed
    except ImportError as error:
        raise SettingsError(
            f"--traces-endpoint is {settings.traces_endpoint}: expected the package opentelemetry, which "
            "`pip install 'gangshare[traces]'` installs"
        ) from error
    return traces(engine, settings.traces_endpoint, settings.traces_sample)
