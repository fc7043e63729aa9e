"""A small cluster's books, as the extender's status port tells them."""

import json
from typing import Any

A100, T4 = "NVIDIA A100-SXM4-80GB", "Tesla T4"


def a_gpu(index: int, uuid: str, model: str = A100, mem: int = 79, **said: Any) -> dict[str, Any]:
    usual = {"health": "ok", "cordoned": False, "memUsed": 0, "slicesUsed": 0, "whole": False, "pods": []}
    return {"index": index, "uuid": uuid, "model": model, "mem": mem, **usual, **said}


def a_node(name: str, *gpus: dict[str, Any], **said: Any) -> dict[str, Any]:
    usual = {"state": "ready", "unitMiB": 1024, "slicesPerGpu": 100, "problem": None, "unplaced": []}
    return {"name": name, **usual, "gpus": list(gpus), **said}


def a_holder(name: str, mem: int = 0, slices: int = 0, whole: bool = False) -> dict[str, Any]:
    return {"namespace": "default", "name": name, "uid": f"u-{name}", "mem": mem, "slices": slices, "whole": whole}


def an_allocation(container: str, *shares: dict[str, Any]) -> dict[str, Any]:
    return {"v": 1, "unitMiB": 1024, "slicesPerGpu": 100, "containers": {container: list(shares)}}


A_WHOLE_GPU = {"uuid": "GPU-a1", "index": 1, "mem": 79, "slices": 100, "whole": True}

BOOKS: dict[str, Any] = {
    "nodes": [
        a_node(
            "node-a",
            a_gpu(0, "GPU-a0", memUsed=10, slicesUsed=25, pods=[a_holder("train", 10, 25)]),
            a_gpu(1, "GPU-a1", memUsed=79, slicesUsed=100, whole=True, pods=[a_holder("big", 79, 100, True)]),
        ),
        a_node(
            "node-b",
            a_gpu(0, "GPU-b0", T4, 14, health="sick:xid 79"),
            a_gpu(1, "GPU-b1", T4, 14, cordoned=True),
            state="leaving",
            unplaced=[{"namespace": "default", "name": "lost", "uid": "u-lost"}],
        ),
    ],
    "pods": [
        {
            "namespace": "default",
            "name": "train",
            "uid": "u-train",
            "node": "node-a",
            "queue": "research",
            "state": "bound",
            "problem": None,
            "allocation": an_allocation("main", {"uuid": "GPU-a0", "index": 0, "mem": 10, "slices": 25}),
        },
        {
            "namespace": "default",
            "name": "big",
            "uid": "u-big",
            "node": "node-a",
            "state": "binding",
            "problem": None,
            "allocation": an_allocation("main", A_WHOLE_GPU),
        },
        {
            "namespace": "default",
            "name": "lost",
            "uid": "u-lost",
            "node": "node-b",
            "state": "bound",
            "allocation": None,
            "problem": "gangshare.io/allocation is malformed",
        },
    ],
    "waiting": [
        {
            "namespace": "ml",
            "name": "hungry",
            "uid": "u-hungry",
            "code": "NoRoom",
            "sentence": "no GPU with 90 GiB free",
            "numbers": "needs 90 GiB on one GPU; freest: node-a GPU 0 with 69 GiB",
            "since": 185.4,
        },
        {
            "namespace": "ml",
            "name": "resnet-0",
            "uid": "u-resnet-0",
            "code": "GangAssembling",
            "sentence": "gang ml/resnet waits for its members",
            "numbers": "1 of 4 members exist",
            "since": 5.0,
            "group": "ml/resnet",
        },
    ],
    "groups": [
        {
            "namespace": "ml",
            "name": "resnet",
            "phase": "Assembling",
            "since": 65.2,
            "minMember": 4,
            "epoch": 0,
            "present": 1,
            "bound": 0,
            "succeeded": 0,
            "code": "GangAssembling",
            "sentence": "gang ml/resnet waits for its members",
            "numbers": "1 of 4 members exist",
        }
    ],
    "problems": {"forged": 0, "malformed": 1, "overused": 0},
}


def text(books: dict[str, Any] = BOOKS) -> bytes:
    return json.dumps(books).encode()


def answers() -> dict[str, bytes]:
    """By path, as the extender answers them."""
    pods = {f"/explain/{pod['namespace']}/{pod['name']}": pod for pod in (*BOOKS["pods"], *BOOKS["waiting"])}
    groups = {f"/explain/groups/{group['namespace']}/{group['name']}": group for group in BOOKS["groups"]}
    nodes = {f"/inspect/{node['name']}": node for node in BOOKS["nodes"]}
    return {path: text(said) for path, said in {"/inspect": BOOKS, **nodes, **pods, **groups}.items()}
