"""Valid objects and files of every kind that is read, each with most of the fields that are looked at."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from protos.contract import inventory, names
from protos.contract.training import GROUP
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api
from tests.builders import an_inventory, cut

Json = dict[str, Any]
TIME = "2025-01-31T12:00:00Z"
ROOT = Path(__file__).parents[2]
MESH = [(0, 1, "NV2"), (0, 2, "SYS"), (1, 3, "PIX")]


def texts(*values: Any) -> tuple[str, ...]:
    return tuple(json.dumps(value) for value in values)


def meta(name: str, namespace: str = "default", **fields: Any) -> Json:
    return {
        "name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "7", "creationTimestamp": TIME,
        **fields,
    }  # fmt: skip


INVENTORIES = (
    inventory.encode(an_inventory(16, 16, 40, 80, links=MESH, numa=[0, 0, 1, 1], node="n1")),
    inventory.encode(an_inventory(24, node="n2", replicas={"nvidia.com/gpu": 4}, state="leaving")),
    inventory.encode(cut(an_inventory(40, 80, node="n4"), {1: ("1g.10gb", "3g.40gb", "1g.10gb+me")}, single=True)),
    json.dumps({"v": 1, "unitMiB": 1024, "slicesPerGpu": 100, "fabric": {"cluster": "c", "clique": 1}, "gpus": []}),
)
SHARE = {"uuid": "GPU-n1-0", "index": 0, "mem": 4, "slices": 0, "whole": False}
ALLOCATIONS = texts(
    {"v": 1, "unitMiB": 1024, "slicesPerGpu": 100, "containers": {"main": [SHARE]}},
    {"v": 1, "unitMiB": 1024, "slicesPerGpu": 100, "containers": {},
     "group": {"key": "default/g1", "epoch": 3, "size": 2}},
)  # fmt: skip
RESERVATIONS = texts(
    {"v": 1, "until": TIME, "preempting": True,
     "rooms": {f"uid-p{n}": {"node": "n1", "containers": {"main": [f"GPU-n1-{n}"]}} for n in range(2)}},
)  # fmt: skip


def node(name: str, gpus: str, **annotations: str) -> Json:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1e12", "aliyun.com/gpu-mem": "64",
               "aliyun.com/gpu-count": 4}  # fmt: skip
    return {
        "metadata": meta(
            name, "", labels={"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "z1"},
            annotations={names.GPUS: gpus, names.CORDONED_GPUS: "GPU-n1-3", **annotations},
        ),
        "spec": {"unschedulable": False, "taints": [{"key": "dedicated", "value": "x", "effect": "PreferNoSchedule"}]},
        "status": {"capacity": amounts, "allocatable": amounts,
                   "conditions": [{"type": "Ready", "status": "True", "reason": "", "message": ""}]},
    }  # fmt: skip


def container(called: str = "main", /, **limits: Any) -> Json:
    return {
        "name": called, "resources": {"limits": limits, "requests": {"cpu": "500m", "memory": "1Gi"}},
        "env": [{"name": "A", "value": "b"}, {"name": "B", "valueFrom": {"fieldRef": {}}}],
        "ports": [{"hostPort": 8080, "protocol": "TCP", "hostIP": ""}],
    }  # fmt: skip


AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z1", "z2"]}
                    ]
                },
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
            ]
        },
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 5, "preference": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["5"]}]}}
        ],
    },
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    },
}
SPREAD = [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
           "labelSelector": {"matchLabels": {"app": "a"}}, "minDomains": 2}]  # fmt: skip


def pod(name: str, annotations: Json, labels: Json | None = None, *containers: Json, **spec: Any) -> Json:
    owner = {"kind": "Job", "name": "job-1", "uid": "uid-job-1", "controller": True}
    return {
        "metadata": meta(name, annotations=annotations, labels={"app": "a", **(labels or {})}, ownerReferences=[owner]),
        "spec": {
            "containers": list(containers) or [container(**{names.GPU_MEM: "4"})],
            "schedulerName": names.SCHEDULER, "priority": 5, "terminationGracePeriodSeconds": 30,
            "restartPolicy": "Never", "nodeSelector": {"kubernetes.io/hostname": "n1"}, **spec,
        },
        "status": {
            "phase": "Running" if spec.get("nodeName") else "Pending", "startTime": TIME,
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": TIME}],
            "containerStatuses": [{"name": "main", "ready": True, "started": True, "state": {"running": {}}}],
        },
    }  # fmt: skip


SELECTING = {
    names.GPU_COUNT: "2", names.GPU_MODEL: "T4,V1*,!A100", names.GPU_UUID: "GPU-n1-*", names.MIN_GPU_MEMORY: "8Gi",
    names.MIN_CLOCK_MHZ: "100", names.MIN_COMPUTE_CAPABILITY: "7.0", names.LINK: "nvlink", names.PLACEMENT: "spread",
    names.MIXED_MODELS: "allow", names.ISOLATION: "any",
    names.GPU_CLASS: "large",
}  # fmt: skip
GANG = {
    names.GROUP: "g1", names.MIN_MEMBER: "2", names.MIN_MEMBER_BY_ROLE: '{"launcher":1,"worker":1}',
    names.ROLE: "worker", names.QUEUE: "team-a", names.ON_MEMBER_LOST: "restart", names.ON_COMPLETION: "launcher",
    names.SCHEDULE_TIMEOUT_SECONDS: "600", names.EXPECTED_RUNTIME: "90m",
    names.ELASTIC: "true",
}  # fmt: skip
HIVED = "affinityGroup:\n  name: g1\n  members:\n  - podNumber: 2\nvirtualCluster: vc1\n"
OTHERS = {
    "scheduling.volcano.sh/group-name": "g1", "scheduling.k8s.io/group-min-member": "2",
    "scheduling.volcano.sh/group-min-resources": '{"cpu":"3"}', "volcano.sh/queue-name": "team-a",
    "gang.scheduling.koordinator.sh/name": "g1", "gang.scheduling.koordinator.sh/min-available": "2",
    "gang.scheduling.koordinator.sh/waiting-time": "10m", "gang.scheduling.koordinator.sh/groups": '["default/g1"]',
    "yunikorn.apache.org/task-groups": '[{"name":"worker","minMember":2}]', "yunikorn.apache.org/app-id": "g1",
    "yunikorn.apache.org/task-group-name": "worker", "hivedscheduler.microsoft.com/pod-scheduling-spec": HIVED,
}  # fmt: skip
GPUSHARE = {names.ALIYUN_IDX: "0", names.ALIYUN_ALLOCATION: '{"0":{"0":4}}', names.ALIYUN_ASSUME_TIME: "1700000000"}
WHOLE = container("whole", **{names.WHOLE_GPU: 2})


def _unbound(spec: Json) -> Json:
    return {key: value for key, value in spec.items() if key != "nodeName"}


PODS = texts(
    pod("p1", {names.GPU_COUNT: "1"}, None, container(**{names.GPU_MEM: "4", names.GPU_SLICE: "10"})),
    pod("p2", SELECTING, None, container(**{names.GPU_MEM: 8}), affinity=AFFINITY, topologySpreadConstraints=SPREAD,
        tolerations=[{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}]),
    pod("p3", GANG | {names.CHECKPOINT: TIME}, {"kai.scheduler/queue": "team-a"}, WHOLE,
        schedulingGates=[{"name": names.PLAN_GATE}]),
    pod("p4", GANG | {names.ALLOCATION: ALLOCATIONS[0]}, None, nodeName="n1"),
    pod("p5", {names.ALLOCATION: ALLOCATIONS[1], names.RESERVATION: RESERVATIONS[0]}, None, nodeName="n2"),
    pod("p6", {names.RESERVATION: RESERVATIONS[0]}, None,
        initContainers=[container("init") | {"restartPolicy": "Always"}]),
    pod("p7", OTHERS, {"pod-group.scheduling.sigs.k8s.io/name": "g1", "scheduling.x-k8s.io/pod-group": "g1"}),
    pod("p8", {}, {"group-name": GROUP, "training-job-name": "job", "training-job-role": "worker"}, WHOLE,
        nodeName="n1"),
    pod("p9", GPUSHARE, None, container(**{names.ALIYUN_MEM: 4}), nodeName="n1"),
    pod("p10", {}, None, resources={"limits": {"cpu": 1}}, overhead={"cpu": "1"}, hostNetwork=True,
        schedulingGroup={"podGroupName": "g1"}, workloadRef={"name": "w", "podGroup": "g", "podGroupReplicaKey": "0"},
        preemptionPolicy="Never", priorityClassName="high", runtimeClassName="nvidia"),
    json.loads(json.dumps(pod("p11", {}, None, nodeName="n1"))) | {
        "metadata": meta("p11", deletionTimestamp=TIME, deletionGracePeriodSeconds=30,
                         managedFields=[{"manager": "kubectl", "fieldsV1": {"f:metadata": {"f:annotations": {}}}}])},
)  # fmt: skip
WHAT_IFS = texts(
    *(
        {
            "apiVersion": "visibility.gangshare.io/v1alpha1",
            "kind": "WhatIf",
            "metadata": {"name": "new", "namespace": "default"},
            "spec": {
                "pods": [{"template": {**json.loads(text), "spec": _unbound(json.loads(text)["spec"])}, "count": 3}],
                "groups": [
                    {
                        "apiVersion": "gangshare.io/v1alpha1",
                        "kind": "PodGroup",
                        "metadata": {"name": "g1"},
                        "spec": {"minMember": 2},
                    }
                ],
                "nodes": [{"like": "n1", "count": 2}],
            },
        }
        for text in PODS
    )
)
NODES = texts(node("n1", INVENTORIES[0]), node("n2", INVENTORIES[1]), node("n3", INVENTORIES[2]))

GROUP_SPEC = {
    "minMember": 2, "minTaskMember": {"launcher": 1, "worker": 1}, "minResources": {"cpu": "3", "memory": "8Gi"},
    "queue": "team-a", "priorityClassName": "high", "scheduleTimeoutSeconds": 60, "onMemberLost": "restart",
    "onCompletion": "launcher",
    "subGroups": [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1, "parent": "a"}],
    "schedulingPolicy": {"gang": {"minCount": 2}},
    "etReplicaSpecs": {"worker": {"replicas": 2, "minReplicas": 1, "maxReplicas": 4}},
}  # fmt: skip
GROUPS = texts({"metadata": meta("g1", annotations=GANG), "spec": GROUP_SPEC})
JOBS = texts({"metadata": meta("job"), "spec": GROUP_SPEC, "status": {"phase": "Running"}})
SCALERS = texts(
    {
        "metadata": meta("s1", labels={"app.kubernetes.io/managed-by": names.EXTENDER}),
        "spec": {"selector": {"name": "job"}, "toAdd": {"count": 2}, "toDelete": {"count": 1, "podNames": ["p8"]},
                 "timeout": 300},
        "status": {"phase": "Scaling", "conditions": [{"type": "Scaling", "status": "True"}],
                   "toDeletePods": ["p8"], "addPods": None},
    }
)  # fmt: skip
AMOUNTS = {"gpus": "4", "cpu": "8", "memory": "64Gi", "class/large": "1.5", names.GPU_MEM: 64}
QUEUES = texts(
    {
        "metadata": meta("team-a", "", labels={"quota.scheduling.koordinator.sh/allow-lent-resource": "false"}),
        "spec": {
            "parent": "root", "weight": 2, "priority": 5, "guarantee": {"gpus": 1}, "deserved": {"gpus": "2"},
            "capability": AMOUNTS, "reclaimable": True, "closed": False, "namespaces": ["default"], "description": "d",
            "namespaceSelector": {"matchLabels": {"team": "a"},
                                  "matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]},
            "min": AMOUNTS, "max": AMOUNTS,
        },
        "status": {"state": "Open"},
    },
    {
        "metadata": meta("team-b", "default"),
        "spec": {"guarantee": {"resource": {"cpu": 1}}, "deserved": {"cpu": 2}, "capability": {"nvidia.com/gpu": 4},
                 "weight": 1, "min": {"gpus": 1}, "max": {"gpus": 2}},
    },
)  # fmt: skip
CLASSES = texts(
    {
        "metadata": meta("large", ""),
        "spec": {"models": ["T4", "V100*"], "minMemory": "8Gi", "maxMemory": "80Gi", "minClockMHz": 100,
                 "minComputeCapability": "7.0", "link": "nvlink", "numaLocal": True, "migProfile": "1g.10gb",
                 "isolation": "any", "description": "d"},
    }
)  # fmt: skip
BUDGETS = texts(
    {
        "metadata": meta("b1"), "status": {"disruptionsAllowed": 1},
        "spec": {"selector": {"matchLabels": {"app": "a"},
                              "matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["b"]}]}},
    }
)  # fmt: skip
PRIORITIES = texts({"metadata": meta("high", ""), "value": 1000, "preemptionPolicy": "Never"})
NAMESPACES = texts({"metadata": meta("default", "", labels={"team": "a"})})
CONFIG_MAPS = texts({"metadata": meta(f"{names.UNHEALTHY_CONFIGMAP_PREFIX}n1"), "data": {"gpus": "0, 1,x"}})

CAPTURED = ROOT / "tests/unit/extender_shell/captured"
VERBS = {path.stem: path.read_text() for path in sorted(CAPTURED.glob("*.json"))}
REVIEWS = texts({"kind": "AdmissionReview", "request": {"uid": "u1", "object": json.loads(PODS[2])}})
LISTS = texts({"metadata": {"resourceVersion": "9", "continue": ""}, "items": [json.loads(text) for text in PODS[:3]]})
LINES = texts(
    {"type": "ADDED", "object": json.loads(PODS[0])},
    {"type": "DELETED", "object": json.loads(PODS[3])},
    {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12"}}},
    {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}},
)

PROFILES = (
    *(path.read_text() for path in sorted((ROOT / "deviceplugin/profiles").glob("*.yaml"))),
    json.dumps({
        "defaults": {"model": "T4", "memMiB": 15360, "clockMHz": 1590, "cc": "7.5", "numa": 0},
        "gpus": [{"index": 0, "uuid": "GPU-a", "minor": 1, "health": "sick:hot", "xid": 79}, {"pci": "0:1:0.0"}],
        "links": {"all": "SYS", "pairs": [[0, 1, "NV4"]]}, "fabric": {"cluster": "c", "clique": 2},
    }),
)  # fmt: skip
SHARINGS = (
    "version: v1\nsharing:\n  timeSlicing:\n    renameByDefault: true\n    resources:\n    - name: nvidia.com/gpu\n"
    "      replicas: 4\n",
    json.dumps({"version": "v1", "sharing": {"timeSlicing": {"failRequestsGreaterThanOne": True, "resources": [
        {"name": "gpu", "replicas": 2, "rename": "gpu.shared", "devices": "all"}]}}}),
)  # fmt: skip
_ANSWER = base64.b64encode(api.ContainerAllocateResponse(envs={names.VISIBLE_DEVICES: "GPU-n1-0"}).SerializeToString())
CHECKPOINTS = texts(
    {
        "Data": {
            "PodDeviceEntries": [
                {"PodUID": "u1", "ContainerName": "main", "ResourceName": names.GPU_MEM,
                 "DeviceIDs": {"-1": ["GPU-n1-0::m1"]}, "AllocResp": _ANSWER.decode()},
                {"PodUID": "u2", "ContainerName": "main", "ResourceName": names.WHOLE_GPU,
                 "DeviceIDs": {"0": ["GPU-n1-1"]}},
            ],
            "RegisteredDevices": {names.GPU_MEM: ["GPU-n1-0::m1"]},
        },
        "Checksum": 12,
    }
)  # fmt: skip
KUBECONFIGS = texts(
    {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:6443", "tls-server-name": "x"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
)  # fmt: skip
MPS_HOLDERS = (
    '{"v": 1, "holders": [{"pod": "uid", "container": "main", "gpu": "GPU-0", "mps": true, "mem_mib": 4096, '
    '"percent": 25, "ends": 1795608030.5}]}',
)
MPS_STATES = (
    '{"v": 1, "beat": 12.5, "protocol": 3, "gpus": {"GPU-0": {"phase": "wedged", "why": "no answer", '
    '"admitted": {"uid/main": "/run/gangshare/mps/gpus/GPU-0/pipe"}, "processes": [[7, 8]]}}}',
)
