"""All resources, annotations, labels, environment variables and paths that several processes share."""

from __future__ import annotations

import msgspec

from protos.contract import mig

DOMAIN = "gangshare.io"

# Resources (defaults; the three names are cluster-wide settings, see `Resources`).
GPU_MEM = f"{DOMAIN}/gpu-mem"
GPU_SLICE = f"{DOMAIN}/gpu-slice"
WHOLE_GPU = "nvidia.com/gpu"
SHARED_GPU = "nvidia.com/gpu.shared"

# Pod annotations a user sets.
GPU_COUNT = f"{DOMAIN}/gpu-count"
GPU_CLASS = f"{DOMAIN}/gpu-class"
GPU_MODEL = f"{DOMAIN}/gpu-model"
GPU_UUID = f"{DOMAIN}/gpu-uuid"
MIN_GPU_MEMORY = f"{DOMAIN}/min-gpu-memory"
MIN_CLOCK_MHZ = f"{DOMAIN}/min-clock-mhz"
MIN_COMPUTE_CAPABILITY = f"{DOMAIN}/min-compute-capability"
LINK = f"{DOMAIN}/link"
MIXED_MODELS = f"{DOMAIN}/mixed-models"
MIG_PROFILE = f"{DOMAIN}/mig-profile"
ISOLATION = f"{DOMAIN}/isolation"
"""Also a label of namespaces: the default of their pods."""
PLACEMENT = f"{DOMAIN}/placement"
RESTARTABLE = f"{DOMAIN}/restartable"
RESERVATION = f"{DOMAIN}/reservation"
EXPECTED_RUNTIME = f"{DOMAIN}/expected-runtime"
CHECKPOINT = f"{DOMAIN}/checkpoint"
RESIZE = f"{DOMAIN}/resize"

# Pod annotations we write.
ALLOCATION = f"{DOMAIN}/allocation"
WAKE = f"{DOMAIN}/wake"
RESIZED = f"{DOMAIN}/resized"
LIMITED = f"{DOMAIN}/limited"
GPU_MEM_WRITTEN = f"{DOMAIN}/gpu-mem-written"
IDLE = f"{DOMAIN}/idle"

# Groups: annotations or labels of a pod; all but name and role also annotations of its PodGroup.
GROUP = f"{DOMAIN}/group"
MIN_MEMBER = f"{DOMAIN}/min-member"
MIN_MEMBER_BY_ROLE = f"{DOMAIN}/min-member-by-role"
QUEUE = f"{DOMAIN}/queue"
ROLE = f"{DOMAIN}/role"
ON_MEMBER_LOST = f"{DOMAIN}/on-member-lost"
ON_COMPLETION = f"{DOMAIN}/on-completion"
ELASTIC = f"{DOMAIN}/elastic"
SCHEDULE_TIMEOUT_SECONDS = f"{DOMAIN}/schedule-timeout-seconds"

# The usual namespace of the installation, and the variable by which users name another.
NAMESPACE = "gangshare-system"
NAMESPACE_VARIABLE = "GANGSHARE_NAMESPACE"

# The scheduling gate of members that wait for a plan.
PLAN_GATE = f"{DOMAIN}/plan"
# Of its webhook: the name of the configuration, the URL path.
WEBHOOK = "gangshare-webhook"
WEBHOOK_PATH = "/gate"

# The aggregated API: its group and version, the name of its APIService, and that of its certificate and Service.
VISIBILITY_GROUP = f"visibility.{DOMAIN}"
VISIBILITY_VERSION = "v1alpha1"
VISIBILITY_API_SERVICE = f"{VISIBILITY_VERSION}.{VISIBILITY_GROUP}"
VISIBILITY = "gangshare-visibility"

# Node annotations.
GPUS = f"{DOMAIN}/gpus"
CORDONED_GPUS = f"{DOMAIN}/cordoned-gpus"

# The label of nodes whose GPUs are given over to MPS.
MPS = f"{DOMAIN}/mps"

# The label of nodes whose plugin has a configuration of its own; the Helm chart reads it.
PLUGIN_CONFIG = f"{DOMAIN}/plugin-config"

# The taint of new nodes that the plugin removes; Cluster Autoscaler knows its prefix.
MANAGED_BY = "app.kubernetes.io/managed-by"
"""Label of objects that the extender made: its value is `EXTENDER`."""
STARTUP_TAINT = "startup-taint.cluster-autoscaler.kubernetes.io/gangshare"

# Writers: managedFields manager and Event component.
PLUGIN = "gangshare-plugin"
EXTENDER = "gangshare-extender"
DEFRAG = "gangshare-defrag"
COMMANDS = "gangshare-commands"
USAGE = "gangshare-usage"
"""Also the label `app.kubernetes.io/name` of the pods that measure."""
SCHEDULER = "gangshare-scheduler"
PROFILE = "gangshare"

# Environment of a container.
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
ENV_UUIDS = "GANGSHARE_GPU_UUIDS"
ENV_MEM_MIB = "GANGSHARE_GPU_MEM_MIB"
ENV_PLACES = "GANGSHARE_MIG_PLACES"
ENV_SLICES = "GANGSHARE_GPU_SLICES"
# Whole MiB for each GPU; a hook of NVIDIA's container toolkit makes a limit of the driver of them, if both are set.
MEMORY_REQUEST = "NVIDIA_GPU_MEMORY_REQUEST"
MEMORY_LIMIT = "NVIDIA_GPU_MEMORY_LIMIT"
MPS_VARIABLES = "CUDA_MPS_"
"""Prefix of the variables of MPS, which limit its clients."""
LIBRARY_VARIABLES = ("CUDA_DEVICE_MEMORY_", "CUDA_DEVICE_SM_")
"""Prefixes of the variables of a library that limits containers (HAMi-core), and those that switch its limits off."""
LIBRARY_SWITCHES = ("CUDA_DISABLE_CONTROL", "CUDA_OVERSUBSCRIBE", "GPU_CORE_UTILIZATION_POLICY")

# Further ways to request GPUs from the container runtime.
DEVICE_MOUNTS = "/var/run/nvidia-container-devices"
CDI_ANNOTATIONS = "cdi.k8s.io/"
CDI_KIND = "nvidia.com/gpu"
# The label of namespaces whose pods may request GPUs from the runtime: `all`.
GPU_VISIBILITY = f"{DOMAIN}/gpu-visibility"
# The label of namespaces that says what admission does about keys that we do not read: `deny`, `warn` or `ignore`.
UNKNOWN_KEYS = f"{DOMAIN}/unknown-keys"

# The gpushare dialect (AliyunContainerService/gpushare-scheduler-extender and -device-plugin).
ALIYUN_MEM = "aliyun.com/gpu-mem"
ALIYUN_COUNT = "aliyun.com/gpu-count"
ALIYUN_IDX = "ALIYUN_COM_GPU_MEM_IDX"
ALIYUN_POD = "ALIYUN_COM_GPU_MEM_POD"
ALIYUN_CONTAINER = "ALIYUN_COM_GPU_MEM_CONTAINER"
ALIYUN_DEV = "ALIYUN_COM_GPU_MEM_DEV"
ALIYUN_ASSUME_TIME = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
ALIYUN_ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"
ALIYUN_ALLOCATION = "scheduler.framework.gpushare.allocation"
CGPU_DISABLE = "CGPU_DISABLE"
CGPU_DISABLE_LABEL = "cgpu.disable.isolation"
UNHEALTHY_CONFIGMAP_NAMESPACE = "kube-system"
UNHEALTHY_CONFIGMAP_PREFIX = "unhealthy-gpu-"
UNHEALTHY_CONFIGMAP_KEY = "gpus"

# The kubelet's folders.
DEVICE_PLUGIN_DIR = "/var/lib/kubelet/device-plugins"
KUBELET_SOCKET = "kubelet.sock"
KUBELET_CHECKPOINT = "kubelet_internal_checkpoint"
POD_RESOURCES_SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"

DEFAULT_UNIT_MIB = 1024
DEFAULT_SLICES_PER_GPU = 100


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """The extended resources that pods request, one set for the whole cluster."""

    mem: str = GPU_MEM
    """GPU memory, in units."""
    slice: str = GPU_SLICE
    """Time slices."""
    whole: str = WHOLE_GPU
    """Whole GPUs, or replicas of a GPU if the node's inventory has them."""
    shared: str = SHARED_GPU
    """Replicas of a GPU under NVIDIA's renamed resource; never a whole GPU."""
    unit_mib: int = DEFAULT_UNIT_MIB
    """MiB in a unit of GPU memory."""
    mig: tuple[str, ...] = mig.resources(mig.KNOWN)
    """MIG instances, as NVIDIA's plugin names them in its strategy `mixed`."""

    @property
    def managed(self) -> tuple[str, ...]:
        """All that the books of a node count, and not kube-scheduler."""
        return *self.all, *self.mig

    def has(self, resource: str) -> bool:
        """Whether this is a resource of GPUs, or of MIG instances of any profile."""
        return resource in self.all or mig.of_resource(resource) is not None

    @property
    def all(self) -> tuple[str, str, str, str]:
        """All but those of MIG instances."""
        return self.mem, self.slice, self.whole, self.shared


DEFAULT_RESOURCES = Resources()
GPUSHARE_RESOURCES = Resources(mem=ALIYUN_MEM)

METRICS_LABEL = f"{DOMAIN}/metrics"
"""The label of namespaces whose pods may read our metrics."""
USAGE_PORT = 12351
"""Of the measuring process."""
TOKEN_VARIABLE = "GANGSHARE_TOKEN"
"""The bearer token of the user commands."""
