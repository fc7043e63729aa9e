"""`gangshare plugin`: the flags, each also from the environment, and what they mean."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import grpc.aio
import msgspec
import pynvml
import structlog
import typer

from deviceplugin import cdi, plugin, settings, slices
from deviceplugin.cdi import CdiSource
from deviceplugin.devices import TooManyDevicesError
from deviceplugin.fake import FakeSource
from deviceplugin.health import COOL_DOWN_S, IGNORED_XIDS
from deviceplugin.machine import Source, SourceError
from deviceplugin.nvml import NvmlSource
from deviceplugin.settings import Settings, SettingsError
from deviceplugin.strategies import Strategy
from protos import logs
from protos.contract import names, quantity
from protos.contract.quantity import QuantityError
from protos.kube.credentials import CredentialsError
from protos.logs import LogFormat, LogLevel

log = structlog.get_logger()


def _option(variable: str, text: str, *more: str, **rest: Any) -> Any:
    return typer.Option(envvar=[f"GANGSHARE_{variable}", *more], help=text, **rest)


_FAKE = "Serve the machine of this profile (a shipped name or a YAML file) instead of real GPUs."
_MEM = f"GPU memory in units.  [default: {names.GPU_MEM}; with --gpushare {names.ALIYUN_MEM}]"
_UNIT = "GiB, MiB, a multiple like 256MiB, or a number of MiB; the same in the whole cluster."
_SLICING = "NVIDIA's configuration file with sharing.timeSlicing."
_CDI_DIRS = ",".join(map(str, cdi.SPEC_DIRS))
_XIDS = ",".join(map(str, sorted(IGNORED_XIDS)))


def serve(
    *,
    node_name: Annotated[str, _option("NODE_NAME", "This node's name.", "NODE_NAME")] = "",
    fake: Annotated[str, _option("FAKE", _FAKE, show_default=False)] = "",
    standalone: Annotated[bool, _option("STANDALONE", "No extender: place pods of this node ourselves.")] = False,
    kubelet_dir: Annotated[Path, _option("KUBELET_DIR", "The kubelet's device plugin folder.")] = Path(
        names.DEVICE_PLUGIN_DIR
    ),
    pod_resources: Annotated[Path, _option("POD_RESOURCES", "The kubelet's PodResources socket.")] = Path(
        names.POD_RESOURCES_SOCKET
    ),
    kubeconfig: Annotated[str, _option("KUBECONFIG", "Credentials; else the service account, else $KUBECONFIG.")] = "",
    memory_unit: Annotated[str, _option("MEMORY_UNIT", _UNIT)] = "GiB",
    slices_per_gpu: Annotated[int, _option("SLICES_PER_GPU", "Time slices per GPU.")] = names.DEFAULT_SLICES_PER_GPU,
    resource_mem: Annotated[str, _option("RESOURCE_MEM", _MEM, show_default=False)] = "",
    resource_slice: Annotated[str, _option("RESOURCE_SLICE", "Time slices.")] = names.GPU_SLICE,
    resource_whole: Annotated[str, _option("RESOURCE_WHOLE", "Whole GPUs.")] = names.WHOLE_GPU,
    resource_shared: Annotated[str, _option("RESOURCE_SHARED", "Replicas of a GPU.")] = names.SHARED_GPU,
    gpushare: Annotated[bool, _option("GPUSHARE", "Serve gpushare's names too.")] = False,
    time_slicing_config: Annotated[
        Path | None, _option("TIME_SLICING_CONFIG", _SLICING, "CONFIG_FILE", show_default=False)
    ] = None,
    device_list_strategy: Annotated[
        Strategy, _option("DEVICE_LIST_STRATEGY", "How the container runtime is told of a container's GPUs.")
    ] = Strategy.ENVVAR,
    cdi_kind: Annotated[str, _option("CDI_KIND", "cdi-cri: vendor/class of the GPUs' devices.")] = names.CDI_KIND,
    cdi_spec_dirs: Annotated[str, _option("CDI_SPEC_DIRS", "cdi-cri: folders with their specifications.")] = _CDI_DIRS,
    ignored_xids: Annotated[str, _option("IGNORED_XIDS", "Errors that do not make a GPU sick.")] = _XIDS,
    cool_down: Annotated[float, _option("COOL_DOWN", "Seconds until a GPU is well again.")] = COOL_DOWN_S,
    drain: Annotated[float, _option("DRAIN", "Seconds between saying that we leave and leaving.")] = 3.0,
    metrics_port: Annotated[int, _option("METRICS_PORT", "Prometheus metrics; 0: none.")] = 0,
    log_format: Annotated[LogFormat, _option("LOG_FORMAT", "auto: console on a terminal, else json.")] = LogFormat.AUTO,
    log_level: Annotated[LogLevel, _option("LOG_LEVEL", "The least important line written.")] = LogLevel.INFO,
) -> None:
    """Offer the GPUs of this node to the kubelet, and give each container those that its pod's annotation names."""
    logs.configure(log_format.value, log_level.value)
    mem = resource_mem or (names.ALIYUN_MEM if gpushare else names.GPU_MEM)
    resources = names.Resources(mem=mem, slice=resource_slice, whole=resource_whole, shared=resource_shared)
    try:
        slicing = slices.TimeSlicing()
        if time_slicing_config is not None:
            slicing = slices.read(time_slicing_config, resources, slices_per_gpu)
        known = Settings(
            node_name=node_name,
            fake=fake,
            standalone=standalone,
            kubelet_dir=kubelet_dir,
            pod_resources=pod_resources,
            kubeconfig=kubeconfig,
            resources=resources,
            unit_mib=quantity.memory_unit(memory_unit),
            slices_per_gpu=slices_per_gpu,
            gpushare=gpushare,
            time_slicing=slicing,
            device_list_strategy=device_list_strategy,
            cdi_kind=cdi_kind,
            cdi_spec_dirs=tuple(Path(folder) for folder in cdi_spec_dirs.split(",") if folder),
            ignored_xids=settings.xids(ignored_xids),
            cool_down_s=cool_down,
            drain_s=drain,
            metrics_port=metrics_port,
        )
        run(known)
    except (
        SettingsError,
        QuantityError,
        slices.SharingError,
        CredentialsError,
        SourceError,
        TooManyDevicesError,
    ) as error:
        typer.echo(f"gangshare plugin: {error}", err=True)
        raise typer.Exit(2) from error


def run(known: Settings) -> None:
    """Serve until a signal; raises SourceError for an unusable profile, CredentialsError, TooManyDevicesError."""
    log.info("settings", **msgspec.to_builtins(known, enc_hook=str))
    source: Source = FakeSource(known.fake, known.node_name) if known.fake else NvmlSource(pynvml)
    if known.device_list_strategy is Strategy.CDI_CRI:
        source = CdiSource(source, known.cdi_kind, known.cdi_spec_dirs)
    try:
        grpc.aio.init_grpc_aio()  # else its poller ends with the last server's memory, and may wait for itself
        asyncio.run(plugin.run(known, source))
    finally:
        source.close()
