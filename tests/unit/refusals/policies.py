"""What the API server refuses by our admission policies, and the test on a real API server that reaches each sentence.

Policies on the accounts of the extender and the plugin are left out: no user meets them.
"""

from __future__ import annotations

from typing import NamedTuple


class Ruling(NamedTuple):
    """A sentence of an admission policy."""

    policy: str
    sentence: str
    """`<what>` stands for what differs."""
    advice: str
    test: str
    """A test of tests/cluster that meets it: FILE::NAME."""


KEYS, RIGHTS = "test_keys_policy.py", "test_rights.py"
MISTAKE = f"{KEYS}::test_a_mistake_is_warned_of_and_denied_or_passed_over_where_the_namespace_says_so"
LONG = f"{KEYS}::test_mistakes_without_end_are_not_listed_and_take_the_api_server_no_time"
LIMITS = "which GPUs a container sees is decided by its resource limits alone"
EXEMPT = "monitors that need all belong to a namespace with the label gangshare.io/gpu-visibility=all"
CONTAINER = "test_no_container_of_any_pod_names_gpus"
LEAVE = "leave it as it is"


def _mistake(sentence: str, test: str = MISTAKE) -> Ruling:
    return Ruling("gangshare-keys", sentence, "write what is expected", test)


def _devices(sentence: str, test: str) -> Ruling:
    said = f"{sentence}: {LIMITS}; {EXEMPT}"
    return Ruling("gangshare-visibility", said, "leave it out, or use such a namespace", f"test_visibility.py::{test}")


def _right(policy: str, sentence: str, test: str, advice: str = LEAVE) -> Ruling:
    return Ruling(policy, sentence, advice, f"{RIGHTS}::{test}")


RULINGS = [
    _mistake("<place> <key> is not known to Gangshare: its <place>s are <keys>"),
    _mistake("<place> <key> is not known to Gangshare: did you mean <key>?"),
    _mistake("<place> <key> is not known to Gangshare: write <key>"),
    _mistake("<place> <key> is not known to Gangshare: write it as annotation <key>"),
    _mistake("<place> <key> is not known to Gangshare: write it as limit <resource> of a container"),
    _mistake("<key> is not known to Gangshare: write annotation <key>"),
    _mistake("the keys of gangshare.io are not known to Gangshare, and too many to list", LONG),
    _mistake("<place> <key> is of <product>, and Gangshare does not read it: write <place> <key>"),
    _mistake("the keys are of other products, and Gangshare does not read them", LONG),
    _mistake(
        "container <name>: <resource> is <value>: expected a number of <unit>: write <resource>: <amount>",
    ),
    _mistake("container <name> asks <resource> 0, which is no GPU: ask one or more, or leave it out"),
    _mistake(
        "container <name> asks <resource> <amount>, and gangshare.io/gpu-count <count> is for parts of GPUs: write "
        "<resource>: <amount> without gangshare.io/gpu-count"
    ),
    _mistake(
        "annotation <key> selects GPUs, and no container asks for any: write limit <resource>, <resource> or "
        "<resource> of a container, or leave it out"
    ),
    _mistake("the limits of several containers are no amounts of GPUs", LONG),
    _mistake("schedulerName is <name>: that scheduler does not ask Gangshare: write schedulerName: <name>"),
    _mistake(
        "<place> <key> of the <kind> itself is not read: write it in the metadata of its pod template",
        f"{KEYS}::test_an_annotation_of_the_workload_itself_is_told",
    ),
    _mistake("<key> is <value>: expected <what the extender expects>"),
    _mistake("gangshare.io/min-gpu-memory is <value>: expected an amount with its unit: write <amount>"),
    _devices("no container may set NVIDIA_VISIBLE_DEVICES, but to void, none or nothing", CONTAINER),
    _devices("no envFrom may have a prefix that NVIDIA_VISIBLE_DEVICES begins with", CONTAINER),
    _devices("no container may mount a volume at /var/run/nvidia-container-devices", CONTAINER),
    _devices("no pod may have annotations cdi.k8s.io/*", "test_no_annotation_names_devices_of_cdi"),
    _devices(
        "the pod has <count> annotations: expected at most 512, as more are not searched for cdi.k8s.io/*",
        "test_more_annotations_than_the_policy_searches_are_refused",
    ),
    Ruling(
        "gangshare-visibility-keys",
        "no ConfigMap and no Secret may have the key NVIDIA_VISIBLE_DEVICES, which containers could take by envFrom: "
        f"{LIMITS}",
        "take another key",
        "test_visibility.py::test_nothing_that_env_from_may_take_has_the_variables_name",
    ),
    Ruling(
        "gangshare-visibility-keys",
        "no ConfigMap and no Secret may have the key NVIDIA_GPU_MEMORY_REQUEST or NVIDIA_GPU_MEMORY_LIMIT, which "
        "containers could take by envFrom: how much GPU memory a container gets is decided by its resource limits "
        "alone",
        "take another key",
        "test_visibility.py::test_nothing_that_env_from_may_take_limits_gpu_memory",
    ),
    _right(
        "gangshare-allocation",
        "the annotation gangshare.io/allocation may not be <set, changed or removed> by <user>: it says which GPUs a "
        "pod was given, and gangshare alone writes it when it places the pod; <leave it out, or as it is>",
        "test_nobody_else_writes_an_allocation_not_even_an_administrator",
        "leave it out of pods, templates and backups",
    ),
    _right(
        "gangshare-allocation",
        "the annotation gangshare.io/resized may not be changed: it says what gangshare has booked for a running pod; "
        "use gangshare resize, and leave it out of pod templates",
        "test_the_extender_alone_says_what_is_booked_for_a_running_pod",
        "use `gangshare resize`",
    ),
    _right(
        "gangshare-reservation",
        "the annotation gangshare.io/reservation may not be <set, changed or removed> by <user>: it has GPUs kept for "
        "pods that wait; gangshare defrag --apply sets it through pods/status, with the right to create reservations "
        "of gangshare.io<what to leave out>",
        "test_a_tenant_asks_for_no_room",
        "leave it out, or ask for the right",
    ),
    Ruling(
        "gangshare-idle",
        "the annotation gangshare.io/idle may not be <set, changed or removed> by <user>: it says since when a pod "
        "uses none of its GPUs, and gangshare-usage alone writes it",
        "leave it out of pods, templates and backups",
        "test_component_rights.py::test_nobody_else_says_that_a_pod_is_idle_or_that_it_is_not",
    ),
    _right(
        "gangshare-reservation",
        "the annotation gangshare.io/reservation may say preempting only if the extender writes it: it says that the "
        "extender evicts pods for this room",
        "test_an_operator_asks_for_room_through_status_and_does_not_preempt",
    ),
    _right(
        "gangshare-group-priority",
        "spec.priorityClassName is <class>: PodGroups of system classes may only be in the namespace kube-system, this "
        "one is in <namespace>",
        "test_a_podgroup_of_a_system_class_is_refused_outside_of_kube_system",
        "name another PriorityClass",
    ),
    _right(
        "gangshare-queue-namespaces",
        "queue <queue> does not admit pods of namespace <namespace>: its namespaceSelector selects others",
        "test_a_queue_is_named_only_in_namespaces_that_it_admits",
        "name a queue that admits this namespace, or ask the queue's owner",
    ),
    _right(
        "gangshare-queue-fixed",
        "<keys> may not change: what has started stays in its queue",
        "test_what_has_started_stays_in_its_queue",
    ),
    _right(
        "gangshare-inventory",
        "the annotation gangshare.io/gpus of node <node> may not be changed by <user>: it says which GPUs the node "
        "has, and gangshare-plugin of that node writes it",
        "test_a_kubelet_does_not_say_which_gpus_its_node_has",
    ),
]
