"""Objects as an API server shows them, with what the scheduler does not read left in."""

from typing import Any

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "train-0",
        "namespace": "default",
        "uid": "uid-0",
        "resourceVersion": "41",
        "creationTimestamp": "2025-01-31T12:00:00Z",
        "generateName": "train-",
        "labels": {"app": "train", "gangshare.io/group": "g"},
        "annotations": {"gangshare.io/min-member": "4"},
        "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-job", "controller": True},
        ],
        "managedFields": [
            {
                "manager": "kube-controller-manager",
                "operation": "Update",
                "apiVersion": "v1",
                "time": "2025-01-31T12:00:00Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": {
                    "f:metadata": {"f:labels": {"f:app": {}}},
                    "f:spec": {"f:containers": {'k:{"name":"main"}': {"f:image": {}, "f:resources": {"f:limits": {}}}}},
                },
            }
        ],
    },
    "spec": {
        "schedulerName": "gangshare",
        "schedulingGates": [{"name": "gangshare.io/plan"}],
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "restartPolicy": "Never",
        "dnsPolicy": "ClusterFirst",
        "terminationGracePeriodSeconds": 30,
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            },
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
        ],
        "initContainers": [{"name": "side", "image": "proxy:1", "restartPolicy": "Always"}],
        "containers": [
            {
                "name": "main",
                "image": "train:1",
                "imagePullPolicy": "IfNotPresent",
                "resources": {"limits": {"gangshare.io/gpu-mem": "10"}, "requests": {"cpu": "500m"}},
                "env": [
                    {"name": "WORLD_SIZE", "value": "4"},
                    {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                ],
                "terminationMessagePath": "/dev/termination-log",
                "volumeMounts": [
                    {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "token", "readOnly": True}
                ],
            }
        ],
        "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
    },
    "status": {
        "phase": "Pending",
        "nominatedNodeName": "node-1",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "gated"}],
        "containerStatuses": [
            {
                "name": "main",
                "ready": True,
                "started": True,
                "state": {"running": {"startedAt": "2025-01-31"}},
            },
            {"name": "two", "ready": False, "state": {"waiting": {"reason": "ContainerCreating"}}},
            {
                "name": "three",
                "ready": False,
                "state": {"terminated": {"exitCode": 137, "finishedAt": "2025-01-31T12:00:00Z"}},
            },
        ],
        "qosClass": "Burstable",
    },
}

NODE: dict[str, Any] = {
    "metadata": {"name": "node-1", "uid": "uid-n", "resourceVersion": "7", "annotations": {"gangshare.io/gpus": "{}"}},
    "spec": {"unschedulable": True, "taints": [{"key": "gpu", "value": "true", "effect": "NoSchedule"}]},
    "status": {
        "capacity": {"cpu": "64", "gangshare.io/gpu-mem": "79"},
        "allocatable": {"cpu": "63500m", "gangshare.io/gpu-mem": "79"},
        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2025-01-31T12:00:00Z"}],
        "images": [{"names": ["a"], "sizeBytes": 1}],
    },
}
