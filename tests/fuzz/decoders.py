"""Every decoder of what others write: how it is called, with what it may refuse an input, and valid inputs."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from deviceplugin import checkpoint, fake, slices
from deviceplugin.limits import protocol as limits
from deviceplugin.mps import exchange
from deviceplugin.usage import holders
from extender.cluster import kinds
from extender.engine.cycle.engine import Engine
from extender.engine.types import trust
from extender.engine.types.events import NodeSeen
from extender.engine.types.settings import Settings
from extender.server.desk import Refusal
from extender.server.whatif import page as whatif
from extender.wire import admission, shapes
from gangfilter import dialects
from gangfilter.podgroups import KINDS, PodGroupError, declaration
from protos.contract import (
    allocation,
    ask,
    budget,
    gpu_class,
    inventory,
    names,
    namespace,
    objects,
    ownership,
    priority,
    queue_sources,
    reservation,
    resize,
    training,
)
from protos.contract.ask import AskError
from protos.contract.books import NodeBooks
from protos.contract.codec import BAD_JSON, ContractError
from protos.files import FileError
from protos.kube import credentials, errors, reflect
from protos.kube.changes import Ref
from protos.kube.client import ApiClient
from protos.kube.errors import CredentialsError
from protos.kube.reflect import Reflector
from tests.fuzz import corpus

CPU_S = 1.0
"""The slowest inputs take less than a tenth of it: it holds on a machine three times slower, and busy."""
FILE_S = 5.0
"""The same of a file that an operator writes, and that a parser in Python reads: the slowest take half a second."""
Errors = tuple[type[Exception], ...]


class Target(NamedTuple):
    """A decoder."""

    name: str
    seeds: Sequence[str]
    decode: Callable[[bytes], Any]
    states: Errors
    """The errors that it may raise."""
    share: int = 10
    """Of how many inputs in proportion to others."""
    cpu_s: float = CPU_S
    """CPU time that one input may take."""


def _pod(data: bytes) -> None:
    """A pod, and what is read of it by itself."""
    pod = objects.decode_pod(data)
    dialects.membership(pod)
    dialects.queue(pod)
    dialects.speaks(pod)
    ask.held(pod, names.Resources())
    ownership.owners(ownership.read(pod.metadata.managed_fields), names.ALLOCATION)
    try:
        asked = ask.parse(pod, names.GPUSHARE_RESOURCES)
    except AskError as error:
        if len(str(error)) > LONGEST:
            raise
    else:
        if asked is not None:
            trust.from_gpushare(pod, asked, _inventory)


_inventory = inventory.decode(corpus.INVENTORIES[0]) or inventory.Inventory(v=1, unit_mib=1, slices_per_gpu=1, gpus=())
_books = NodeBooks(_inventory)
LONGEST = 5000
"""Characters of a sentence: it names what is wrong, and does not repeat all of it."""


def _holder(data: bytes) -> None:
    """What the measuring process reads of a pod."""
    found = holders.holder(holders.decode_pod(data), _books, names.Resources())
    assert found is None or len(found.queue) + len(found.owner) < LONGEST


def _node(data: bytes) -> None:
    found = objects.decode_node(data)
    inventory.from_gpushare(found.status.capacity, 1024, 100)


def _text(decode: Callable[[str], Any]) -> Callable[[bytes], None]:
    """A decoder of an annotation, which is text."""
    return lambda data: decode(data.decode(errors="replace"))


def _profile(data: bytes) -> None:
    machine = fake.machine(fake.parse(data.decode(errors="replace").encode()), "n1", instances=True)
    assert len(machine.gpus) <= 256


def _sharing(data: bytes) -> None:
    slices.parse(data.decode(errors="replace").encode(), names.Resources(), 100)


def _what_if(data: bytes) -> None:
    """A question of what-if to a small cluster, until its answer."""
    for _ in whatif.pieces(_small, data, lambda: 100.0):
        pass
    assert not _small.pods
    assert not _small.counters.total(), "no error of ours"


_small = Engine(Settings())
for _text_of_node in corpus.NODES:
    _small.step(NodeSeen(objects.decode_node(_text_of_node.encode())), 1.0)
_small.effects()


def _filter(data: bytes) -> None:
    asked = shapes.args(data)
    shapes.encode(shapes.kept(asked, asked.candidates()[:1]))
    shapes.encode(shapes.refused(asked, "no"))
    shapes.unchanged(shapes.pod_only(data))


def _preempt(data: bytes) -> None:
    asked = shapes.preemption(data)
    shapes.encode(shapes.surviving(asked, {node: found.uids() for node, found in asked.victims().items()}))


def _review(data: bytes) -> None:
    asked = admission.question(data)
    admission.answer(asked, gated=dialects.born_gated(asked.pod, (names.SCHEDULER,)))


def _line(data: bytes) -> None:
    for _ in Reflector[Any](_nobody, "/pods", objects.decode_pod)._decoded(data):
        pass


_nobody: ApiClient = msgspec.UNSET  # type: ignore[assignment]
"""No client: a line of a watch is read without one."""


def _config(data: bytes) -> None:
    kind = kinds.unhealthy_gpus(lambda *_: None)
    kind.seen(Ref(kind.namespace, f"{names.UNHEALTHY_CONFIGMAP_PREFIX}n1", "u"), kind.decode(data))


importlib.import_module("kubernetes.aio.config.kube_config")  # that takes a second, and is no input's fault


def _kubeconfig(data: bytes) -> None:
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config"
        path.write_bytes(data)
        asyncio.run(credentials.from_kubeconfig(str(path)))


def _job(data: bytes) -> None:
    """All that is read of a TrainingJob."""
    _jobs(data)


_jobs = next(kind.decode for kind in kinds.optional(lambda *_: None) if kind.kind == training.JOB_KIND)
_groups = tuple(Target(kind.source, corpus.GROUPS, partial(declaration, kind), (PodGroupError,), 3) for kind in KINDS)
_queues = tuple(
    Target(f"{kind.kind} {kind.api_version}", corpus.QUEUES, partial(queue_sources.decode, kind), BAD_JSON, 5)
    for kind in queue_sources.SOURCES
)
WISH = '{"v": 1, "id": "5f0a", "containers": {"main": 12, "side": 3}}'
ANSWER = '{"v": 1, "id": "5f0a", "containers": {"main": 12}, "booked": {"main": 12}, "refused": ""}'
LIMITS = (
    '{"ask": "hello", "v": 1}',
    '{"ask": "limit", "v": 1, "pod": "0a1b2c3d-1111-2222-3333-444455556666", "container": "", "mib": {"GPU-0": 4096}}',
)
_verbs: Mapping[str, Callable[[bytes], Any]] = {"filter": _filter, "preempt": _preempt, "bind": shapes.binding}
TARGETS: tuple[Target, ...] = (
    Target("Pod", corpus.PODS, _pod, BAD_JSON, 60),
    Target("WhatIf", corpus.WHAT_IFS, _what_if, (Refusal,), 5, 2 * CPU_S),
    Target("holder", corpus.PODS, _holder, BAD_JSON, 20),
    Target("Node", corpus.NODES, _node, BAD_JSON, 20),
    Target("inventory", corpus.INVENTORIES, _text(inventory.decode), (ContractError,), 30),
    Target("allocation", corpus.ALLOCATIONS, _text(allocation.decode), (ContractError,), 20),
    Target("reservation", corpus.RESERVATIONS, _text(reservation.decode), (ContractError,), 20),
    Target("wish", (WISH,), _text(resize.wish.decode), (ContractError,), 10),
    Target("answer to a wish", (ANSWER,), _text(resize.resized.decode), (ContractError,), 10),
    Target("request for a limit", LIMITS, limits.request, (limits.LimitError,), 10),
    *_groups,
    Target("TrainingJob", corpus.JOBS, _job, (PodGroupError, *BAD_JSON)),
    Target("ScaleIn", corpus.SCALERS, partial(training.decode_scaler, "ScaleIn"), BAD_JSON),
    Target("ScaleOut", corpus.SCALERS, partial(training.decode_scaler, "ScaleOut"), BAD_JSON),
    *_queues,
    Target("GpuClass", corpus.CLASSES, gpu_class.decode, BAD_JSON),
    Target("PodDisruptionBudget", corpus.BUDGETS, budget.decode, BAD_JSON),
    Target("PriorityClass", corpus.PRIORITIES, priority.decode, BAD_JSON, 5),
    Target("Namespace", corpus.NAMESPACES, namespace.decode, BAD_JSON, 5),
    Target("ConfigMap", corpus.CONFIG_MAPS, _config, BAD_JSON, 5),
    *(
        Target(name, (text,), _verbs[name.partition("-")[0]], (shapes.WireError,), 5)
        for name, text in corpus.VERBS.items()
    ),
    Target("AdmissionReview", corpus.REVIEWS, _review, (admission.AdmissionError,)),
    Target("list", corpus.LISTS, reflect._pages.decode, BAD_JSON, 5),
    Target("watch line", corpus.LINES, _line, (errors.ApiError,)),
    Target("profile", corpus.PROFILES, _profile, (FileError,), 2, FILE_S),
    Target("sharing configuration", corpus.SHARINGS, _sharing, (FileError,), cpu_s=FILE_S),
    Target("checkpoint", corpus.CHECKPOINTS, checkpoint.parse, (FileError,)),
    Target("holders", corpus.MPS_HOLDERS, exchange.decode_holders, (FileError,)),
    Target("state of MPS", corpus.MPS_STATES, exchange.decode_state, (FileError,)),
    Target("kubeconfig", corpus.KUBECONFIGS, _kubeconfig, (CredentialsError,), 1, FILE_S),
)


def plain(seeds: Sequence[str]) -> Sequence[str]:
    """Those of the seeds that are JSON."""

    def is_json(text: str) -> bool:
        try:
            json.loads(text)
        except ValueError:
            return False
        return True

    return tuple(filter(is_json, seeds))
