"""The plugin's settings: one frozen value, read from flags and the environment, logged at start."""

from math import inf
from pathlib import Path
from typing import Annotated

from deviceplugin import answers, cdi, cgroups
from deviceplugin.common_settings import NodeName, check_node_name, check_port
from deviceplugin.devices import Sharing
from deviceplugin.health import COOL_DOWN_S, IGNORED_XIDS
from deviceplugin.isolation.levels import Mode, OnMismatch, parsed
from deviceplugin.library.regions import DEFAULT_DIR as LIBRARY_DIR
from deviceplugin.mig.strategy import Strategy
from deviceplugin.slices import TimeSlicing
from deviceplugin.sockets import LONGEST_PATH, UNFINISHED
from protos.contract import names, selector
from protos.contract.flag import Flag, listed, option
from protos.contract.shared_settings import SettingsError, SharedSettings
from protos.logs import Format, Level


def xids(text: str) -> frozenset[int]:
    """Error numbers separated by commas; raises SettingsError."""
    parts = listed(text)
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise SettingsError(f"{text!r} is no list of XIDs: expected numbers separated by commas, like 13,31")
    return frozenset(map(int, parts))


def _folders(text: str) -> tuple[Path, ...]:
    return tuple(map(Path, listed(text)))


def _check_socket(path: Path, of_kubelet: Path) -> None:
    """Raise SettingsError for a socket that cannot be served, or is the kubelet's."""
    most = LONGEST_PATH - len(UNFINISHED)
    if not path.is_absolute() or len(bytes(path)) > most:
        raise SettingsError(f"--serve-pod-resources is {path}: expected an absolute path of at most {most} bytes")
    if path == of_kubelet:
        raise SettingsError(f"--serve-pod-resources is {path}, which is the kubelet's: expected another name")


class Settings(SharedSettings, frozen=True, kw_only=True):
    """All settings of the plugin."""

    node_name: NodeName = ""
    fake: Annotated[str, Flag("Serve fake GPUs. The value is the name of a shipped profile, or a YAML file.")] = ""
    standalone: Annotated[bool, Flag("Run without the extender. The plugin places the pods of its node.")] = False
    kubelet_dir: Annotated[Path, Flag("Folder of the kubelet's device plugin sockets.")] = Path(names.DEVICE_PLUGIN_DIR)
    pod_resources: Annotated[Path, Flag("Socket of the kubelet's PodResources API.")] = Path(names.POD_RESOURCES_SOCKET)
    serve_pod_resources: Annotated[
        Path | None,
        Flag("Socket on which the plugin serves PodResources with the true GPUs of containers, for dcgm-exporter."),
    ] = None
    mps_dir: Annotated[
        Path | None,
        Flag("Folder that is shared with the MPS component of this node. Without it, MPS is not used."),
    ] = None
    kubeconfig: Annotated[
        str, Flag("Kubeconfig file. Without one: the service account, or else $KUBECONFIG.", metavar="FILE")
    ] = ""
    time_slicing_config: Annotated[
        Path | None,
        Flag("Configuration file of NVIDIA's device plugin, with sharing.timeSlicing.", variables=("CONFIG_FILE",)),
    ] = None
    time_slicing: TimeSlicing = TimeSlicing()
    """The content of that file."""
    mig_strategy: Annotated[
        Strategy,
        Flag(
            "How MIG instances are offered, as by NVIDIA's plugin. none: not at all, unless the configuration file has "
            "flags.migStrategy; single: where all are alike, as whole GPUs; mixed: as nvidia.com/mig-PROFILE.",
            variables=("MIG_STRATEGY",),
        ),
    ] = Strategy.NONE
    device_list_strategy: Annotated[
        answers.Strategy, Flag("How the GPUs of a container are passed to the container runtime.")
    ] = answers.Strategy.ENVVAR
    cdi_kind: Annotated[
        str, Flag("Vendor and class of the GPUs' CDI devices, with a --device-list-strategy of CDI.")
    ] = names.CDI_KIND
    cdi_spec_dirs: Annotated[
        tuple[Path, ...],
        Flag(
            "Folders of CDI specifications, separated by commas, with a --device-list-strategy of CDI.",
            _folders,
            default=",".join(map(str, cdi.SPEC_DIRS)),
        ),
    ] = cdi.SPEC_DIRS
    ignored_xids: Annotated[
        frozenset[int],
        Flag(
            "XIDs that do not make a GPU unhealthy, separated by commas.",
            xids,
            default=",".join(map(str, sorted(IGNORED_XIDS))),
        ),
    ] = IGNORED_XIDS
    cool_down_s: Annotated[float, Flag("Seconds without errors after which an unhealthy GPU is healthy again.")] = (
        COOL_DOWN_S
    )
    isolation: Annotated[
        Mode,
        Flag(
            "Isolation of parts of GPUs. off: none is set up; driver: memory limits of NVIDIA's driver, where the node "
            "proves them; library: the same, or else those of --library-path; auto: the best that the node proves."
        ),
    ] = Mode.OFF
    cgroup_root: Annotated[Path, Flag("Where the host's cgroup v2 hierarchy is mounted.")] = cgroups.ROOT
    host_root: Annotated[
        Path | None,
        Flag("Where the host's root, or its /usr, is mounted: nvidia-ctk there tells the toolkit's version."),
    ] = None
    toolkit_version: Annotated[
        str, Flag("Version of NVIDIA's container toolkit on this node, stated instead of found.")
    ] = ""
    library_path: Annotated[
        Path | None,
        Flag(
            "Library of yours that limits the memory of containers (libvgpu.so of HAMi-core), at the same path of the "
            "host; ld.so.preload lies beside it."
        ),
    ] = None
    library_dir: Annotated[
        Path, Flag("Folder of the host, at the same path, for what that library writes: on a small file system.")
    ] = Path(LIBRARY_DIR)
    library_dir_mib: Annotated[int, Flag("The most MiB that the file system of --library-dir may have.")] = 1024
    library_compute: Annotated[bool, Flag("The library of --library-path also caps compute by slices.")] = False
    on_isolation_mismatch: Annotated[
        OnMismatch, Flag("What happens to a pod that runs without the memory limit that it was given.")
    ] = OnMismatch.REPORT
    limits_socket: Annotated[
        Path | None,
        Flag(
            "Socket of the helper that sets memory limits of pods, where the toolkit's hook does not. "
            "Without it, none is asked."
        ),
    ] = None
    partitioner_socket: Annotated[
        Path | None,
        Flag("Socket of the helper that makes MIG instances when pods start (components/mig-dynamic)."),
    ] = None
    startup_taint: Annotated[
        str,
        Flag(
            "Key of a taint that the plugin removes from its node once the node offers its GPUs, for autoscalers. "
            "Needs components/autoscaler. Empty: none.",
            metavar="KEY",
        ),
    ] = ""
    stop_delay_s: Annotated[
        float,
        Flag("Seconds between the annotation that the plugin stops, and its stop. No pod is placed there any more."),
    ] = 3.0
    metrics_port: Annotated[int, Flag("Port of Prometheus metrics, on all interfaces. 0 disables.")] = 0
    log_format: Annotated[Format, Flag("Format of the log. auto: console on a terminal, or else json.")] = "auto"
    log_level: Annotated[Level, Flag("Lowest level that is logged.")] = "info"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_node_name(self.node_name)
        for name in ("cool_down_s", "stop_delay_s"):
            if not 0 <= getattr(self, name) < inf:
                raise SettingsError(f"{option(name)} is {getattr(self, name)}: expected 0 or more")
        if not cdi.KIND.fullmatch(self.cdi_kind):
            raise SettingsError(f"--cdi-kind is {self.cdi_kind!r}: expected vendor/class, like {names.CDI_KIND}")
        if self.startup_taint and not selector.KEY.fullmatch(self.startup_taint):
            expected = f"expected the key of a taint, like {names.STARTUP_TAINT}"
            raise SettingsError(f"--startup-taint is {self.startup_taint!r}: {expected}")
        if self.toolkit_version and parsed(self.toolkit_version) is None:
            raise SettingsError(f"--toolkit-version is {self.toolkit_version!r}: expected a version, like 1.20.1")
        if self.isolation is Mode.LIBRARY and self.library_path is None:
            raise SettingsError("--isolation is library: expected --library-path with your library")
        for name in ("library_path", "library_dir"):
            path: Path | None = getattr(self, name)
            if path is not None and not path.is_absolute():
                raise SettingsError(f"{option(name)} is {path}: expected an absolute path")
        if self.library_dir_mib < 1:
            raise SettingsError(f"--library-dir-mib is {self.library_dir_mib}: expected 1 or more")
        if self.serve_pod_resources is not None:
            _check_socket(self.serve_pod_resources, self.pod_resources)
        if self.mig is Strategy.SINGLE and self.resources.whole in self.time_slicing.replicas:
            raise SettingsError(
                f"--mig-strategy is single, and the configuration file has replicas of {self.resources.whole}: "
                "expected one of the two, since a MIG instance is not divided further"
            )
        if self.partitioner_socket is not None:
            self._check_partitioner()
        check_port("metrics_port", self.metrics_port, "none")

    def _check_partitioner(self) -> None:
        if self.mig is not Strategy.MIXED:
            raise SettingsError(f"--partitioner-socket is set and --mig-strategy is {self.mig}: expected mixed")
        if self.device_list_strategy.by_cdi:
            raise SettingsError(
                f"--partitioner-socket is set and --device-list-strategy is {self.device_list_strategy}: expected one "
                "without CDI, whose specification does not name instances that are made later"
            )

    @property
    def limits_by_library(self) -> bool:
        """Whether the operator brings a library, and wants it used."""
        return self.library_path is not None and self.isolation in (Mode.AUTO, Mode.LIBRARY)

    @property
    def mig(self) -> Strategy:
        """The strategy of the flag, or else of the configuration file."""
        return self.time_slicing.mig if self.mig_strategy is Strategy.NONE else self.mig_strategy

    @property
    def sharing(self) -> Sharing:
        """How GPUs are divided."""
        return Sharing(
            resources=self.resources,
            unit_mib=self.unit_mib,
            slices_per_gpu=self.slices_per_gpu,
            replicas=self.time_slicing.replicas,
            gpushare=self.gpushare,
            mig=self.mig,
        )
