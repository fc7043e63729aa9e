"""Bounds on all user input: numbers, lengths and counts, and the sentence for a value beyond its bound.

Users can write anything that the API server accepts. The decoders check these bounds before any work that grows with
the value. No other module defines such bounds.
"""

from __future__ import annotations

import re

import msgspec

HUGE = 10**12
"""Messages do not repeat larger values: a JSON integer may have thousands of digits."""


class Bound(msgspec.Struct, frozen=True):
    """The largest accepted value."""

    what: str
    """The bounded thing in the words of users: `GPUs of a node`."""
    most: int
    unit: str = ""

    def exceeded(self, value: int | float) -> str:
        """The sentence for a value beyond the bound."""
        unit = f" {self.unit}" if self.unit else ""
        shown = f"{value}" if abs(value) < HUGE else f"more than {HUGE}"
        return f"{self.what}: {shown}{unit}, expected at most {self.most}{unit}"

    def capped(self, value: int) -> int:
        """The value, limited to 0 … `most`."""
        return min(max(value, 0), self.most)


GPUS_PER_NODE = Bound("GPUs of a node", 256)
"""The largest known machines have 16 to 72."""

AFFINITY = Bound("a pod's affinity, tolerations or spread constraints", 32 << 10, "bytes")
"""Those of operators have some 1 to 4 KiB. Longer ones are left to kube-scheduler."""
RESOURCES_PER_POD = Bound("resources that a pod requests", 64)
"""Typical pods request two to six."""

HEAD_BYTES = Bound("the head of a request", 32 << 10, "bytes")
"""A bearer token of an identity provider has some 8 KiB, kube-scheduler's own heads some 200 bytes."""
HEADERS = Bound("headers of a request", 64)
PROXIED_HEADERS = Bound("headers of a request to the aggregated API", 1024)
"""One for each group of the user, some 30 bytes each."""
VERB_BODY = Bound("the body of a filter, prioritize or preempt request", 256 << 20, "bytes")
"""5,000 whole Node objects are some 50 to 125 MiB."""
BIND_BODY = Bound("the body of a bind request", 64 << 10, "bytes")
"""Four names."""
REVIEW_BODY = Bound("the body of an AdmissionReview", 8 << 20, "bytes")
"""kube-apiserver takes objects of 3 MiB."""
WHAT_IF_BODY = Bound("the body of a what-if question", 256 << 10, "bytes")
"""Pods that are alike are one template of some kilobytes."""
WHAT_IF_PODS = Bound("pods of a what-if question", 1024)
WHAT_IF_GROUPS = Bound("PodGroups of a what-if question", 256)
WHAT_IF_NODES = Bound("further nodes of a what-if question", 64)
GRACE = Bound("grace period of a pod that is evicted", 3600, "s")
"""The longest grace period of an eviction, and the longest wait for a terminating pod."""

# -- a node's GPUs: `gangshare.io/gpus`, and gpushare's capacity

GPU_INDEX = Bound("index or minor number of a GPU", 65_535)
GPU_AMOUNT = Bound("amount of a GPU (units, slices, MiB, MHz)", 2**31 - 1)
"""The largest known GPUs have less than 2^20 of each."""
GPU_TEXT = Bound("text about a GPU (UUID, model, PCI address, health)", 256, "characters")
"""NVML's own buffers have 96."""
MIG_PROFILE = Bound("name of a MIG profile", 32, "characters")
"""The longest known has 14."""
MIG_PROFILES = Bound("MIG profiles that can be made on a GPU", 32)
"""The GPU with the most has 16."""
MIG_HELD = Bound("MIG instances that are made on demand on a node", 512)
"""A GPU has at most eight."""
MIG_JOURNAL = Bound("the file of MIG instances that are made on demand", 256 << 10, "bytes")
"""An instance has some 150 bytes."""
MIG_PLACES = Bound("places of MIG instances that can be made on a node", 1024)
"""A GPU has some 25, without profiles for graphics."""
LINK_KIND = Bound("kind of a link", 16, "characters")
LINKS_PER_NODE = Bound("links between the GPUs of a node", GPUS_PER_NODE.most * (GPUS_PER_NODE.most - 1))
"""Every pair in both directions."""
ISOLATION_WHY = Bound("why a node isolates parts no better", 512, "characters")
HELPER_LINE = Bound("message between the plugin and a helper with more rights", 256 << 10, "bytes")
"""A limit for each of 256 GPUs has some 15 KiB, all MIG instances of a node some 40 KiB."""
REPLICA_NAMES = Bound("resources that are served as replicas", 16)
CDI_SPEC_BYTES = Bound("a CDI specification", 4 << 20, "bytes")
"""NVIDIA's of eight GPUs is some 40 KiB."""

# -- the use of GPUs by containers

PID = Bound("number of a process", 2**22)
"""The kernel's PID_MAX_LIMIT."""
FAKE_PROCESSES = Bound("processes of a fake GPU", 4096)
MEASURED = Bound("containers of a node whose use of GPUs is shown", 4096)
"""One row for each container and GPU. A node runs some hundred pods."""
OWNERS = Bound("owners whose time on the GPUs of a node is counted", 4096)
"""One for each namespace, queue and controller."""

# -- pods: requests and annotations

KEYS = Bound("annotations or labels of a pod whose domains are compared with ours", 512)
"""Pods of people and operators have some ten. The admission policy reads no more either."""
LIKENESSES = Bound("domains of a pod's keys that are nearly ours", 16)
"""A comparison takes some 30 µs."""
REQUIREMENTS = Bound("requirements of a pod's node affinity", 64)
REQUIRED_VALUES = Bound("values of all requirements of a pod's node affinity", 1024)
"""Together they are a check of some 60 µs on a node."""
CONTAINERS = Bound("containers of a pod that request GPUs", 64)
NAME = Bound("name of an object", 253, "characters")
START = Bound("number of a gang's start", 2**63 - 1)
ROOMS = Bound("pods of one reservation", 1024)
ROOMS_IN_SUM = Bound("pods of all reservations", 32_768)
"""Each of the largest gang's 2,000 members is named in two annotations."""
GPU_COUNT = Bound("GPUs of one container that requests parts of GPUs", 1024)
GLOBS = Bound("globs of one list", 64)
"""Each is matched against each GPU."""
GLOB = Bound("glob", 128, "characters")
QUANTITY = Bound("quantity", 64, "characters")
"""Kubernetes writes at most some 20."""
DIGITS = Bound("number that is written as text", 9, "digits")

# -- gangs

MEMBERS = Bound("members of a gang", 150_000)
"""Kubernetes supports this many pods in a cluster."""
ROLES = Bound("roles of a gang", 64)
RESOURCES = Bound("resources of one list of amounts", 64)
DURATION = Bound("duration", 60, "characters")
TIME = Bound("time that is waited or run", 2**31 - 1, "s")
"""The range of a field of the API: 68 years."""
JSON_TEXT = Bound("JSON on a pod or PodGroup that is read for its gang", 65_536, "characters")
YAML_TEXT = Bound("YAML on a pod", 2048, "characters")
YAML_BRACKETS = Bound("brackets of a YAML text", 64)
"""Its parser takes time with the square of its depth."""

# -- elastic jobs

SCALERS = Bound("ScaleIns and ScaleOuts of a job", 64)
"""One at a time runs. Ours stay for ten minutes, and there are at most two per minute."""
SCALED = Bound("workers that the ScaleIns of a job name", 2048)

# -- requests for capacity

PROVISIONING_OPEN = Bound("ProvisioningRequests of ours that wait for capacity", 64)
PROVISIONING_LISTED = Bound("ProvisioningRequests that are read", 512)
"""Ours, and those of others that bear our label."""
PROVISIONING_CONDITIONS = Bound("conditions of a ProvisioningRequest", 64)
PROVISIONING_TEXT = Bound("message of a ProvisioningRequest that is shown", 512, "characters")

# -- queues and classes

WEIGHT = Bound("weight of a queue", 10_000)
QUEUE_PRIORITY = Bound("priority of a queue", 1_000_000_000)
QUEUE_DEPTH = Bound("queues above one another", 32)
QUEUE_NAMESPACES = Bound("namespaces of a queue", 1024)
DESCRIPTION = Bound("description of a queue or class", 1024, "characters")
NAMESPACE_LABELS = Bound("labels of a namespace", 256)
SELECTOR_TERMS = Bound("matchLabels and matchExpressions of a namespaceSelector", 32)
SELECTOR_VALUES = Bound("values of an entry of matchExpressions", 256)
QUEUES = Bound("queues of one kind", 5000)
"""Fair shares are divided among all queues."""
QUEUE_DIVIDED = Bound("resources divided among queues", 64)
"""GPUs, and the first resources by name that queues deserve or are guaranteed."""
RESOURCE_NAME = Bound("name of a resource", 317, "characters")
"""A domain of 253, `/` and 63 more."""

# -- files of a node

CHECKPOINT = Bound("the kubelet's checkpoint", 64 << 20, "bytes")
"""The answer of one Allocate has some 1 KiB."""
FILE = Bound("a profile of a fake machine, or a sharing configuration", 256 << 10, "bytes")
MPS_FILE = Bound("a file that the plugin and the MPS component share", 4 << 20, "bytes")
"""Each container that holds a GPU is some 200 bytes."""
MPS_PATH = Bound("path of the pipes of MPS", 107, "characters")
"""The path of a unix socket."""
MPS_ANSWER = Bound("an answer of the MPS control program", 256 << 10, "bytes")
"""Each client is a line."""
KUBECONFIG = Bound("a kubeconfig", 1 << 20, "bytes")
FILE_DEPTH = Bound("brackets within one another in such a file, or in a kubeconfig", 64)
"""Its parser takes time with the square of its depth."""

_BRACKETS = re.compile(r"[\[\]{}]")


def depth(text: str) -> int:
    """The largest number of open brackets in JSON or YAML, also counting brackets in strings."""
    deepest = depth = 0
    for bracket in _BRACKETS.findall(text):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest
