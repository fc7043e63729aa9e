"""Reading through what is known of earlier pods gives what reading the pod alone gives, whatever one edit changes."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any, get_args

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.engine.state.ask_reader import AskReader, OfClass
from extender.engine.types.settings import Settings, UnknownKeys
from protos.contract import foreign, mistakes, names
from protos.contract.objects import decode_pod
from protos.contract.reason import Reason
from protos.contract.selection import Selection
from tests.fuzz import corpus

LAUNCHER = corpus.pod("launcher", {names.GPU_MODEL: "T4"}, None, corpus.container())
INIT = corpus.pod("init", {}, None, initContainers=[corpus.container("init", **{names.GPU_MEM: 4})])
PLAIN = corpus.pod("plain", {}, None, corpus.container(**{names.GPU_MEM: 4}))
PODS = [{**pod, "status": {}} for pod in (PLAIN, INIT, LAUNCHER, *map(json.loads, corpus.PODS))]
KEYS = sorted({
    *mistakes.ANNOTATIONS, *foreign.ANNOTATIONS_OF_OTHERS, *corpus.OTHERS, *corpus.GPUSHARE,
    "gangshare.io/gpu-modle", "gangshare.io/isolation", "gangshare.com/gpu-model", "x.gangshare.io/gpu-model",
    "gpuModel", "gpu_mem", "hami.io/gpu-mem", "nvidia.com/gpu-memory", "runai/gpu-fraction", "cdi.k8s.io/x", "app",
    "gpu", "job-name",
})  # fmt: skip
NAMES = sorted({
    *names.DEFAULT_RESOURCES.all, *foreign.RESOURCES_OF_OTHERS, "cpu", "gangshare.io/gpu-mme", "hami.io/gpu-mem",
})  # fmt: skip
WORDS = st.sampled_from(["", "0", "1", "2", "3", "0.5", "4Gi", "spread", "pack", "T4", "!T4", "GPU-1", "nvlink", "true",
                         "8.0", "large", "Large!", "2026-01-31T12:00:00Z", "{}"])  # fmt: skip
QUANTITIES = WORDS | st.integers(-1, 2**70)
CLASSES = st.sampled_from([
    None, Selection(), Selection(models=("T4",), link="nvlink"), Selection(min_mem_mib=4), Reason("ClassMissing", "x"),
])  # fmt: skip
VARIABLES = st.sampled_from(["NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "RANK"])
ENV = st.fixed_dictionaries(
    {"name": VARIABLES}, optional={"value": st.sampled_from(["", "0", "7", "none", "all"]), "valueFrom": st.just({})}
)
Edit = tuple[tuple[str | int, ...], Any]
"""A path in the JSON of a pod, and what is put there."""


def _at(*path: str | int, value: st.SearchStrategy[Any]) -> st.SearchStrategy[Edit]:
    return st.tuples(st.just(path), value)


def _of_keys(place: str) -> st.SearchStrategy[Edit]:
    return st.tuples(st.tuples(st.just("metadata"), st.just(place), st.sampled_from(KEYS)), WORDS)


def _of_container(*path: str, value: st.SearchStrategy[Any]) -> st.SearchStrategy[Edit]:
    of = st.sampled_from(["containers", "initContainers", "ephemeralContainers"])
    return of.flatmap(lambda place: _at("spec", place, 0, *path, value=value))


def _of_resources(place: str) -> st.SearchStrategy[Edit]:
    return st.sampled_from(NAMES).flatmap(lambda name: _of_container("resources", place, name, value=QUANTITIES))


EDITS = st.one_of(
    _of_keys("annotations"),
    _of_keys("labels"),
    _of_resources("limits"),
    _of_resources("requests"),
    _of_container("name", value=st.sampled_from(["main", "a", "b"])),
    _of_container("restartPolicy", value=st.sampled_from([None, "Always"])),
    _of_container("env", value=st.lists(ENV, max_size=3)),
    _of_container("envFrom", value=st.lists(st.fixed_dictionaries({"prefix": st.sampled_from(["", "NVIDIA_", "A"])}))),
    _of_container("volumeMounts", value=st.just([{"mountPath": f"/x/{names.DEVICE_MOUNTS}"}]) | st.just([])),
    _of_container("ports", value=st.just([{"hostPort": 80}])),
    _at("spec", "nodeName", value=st.sampled_from([None, "", "n1", "n2"])),
    _at("spec", "schedulingGroup", value=st.sampled_from([None, {}, {"podGroupName": "g"}])),
    _at("spec", "workloadRef", value=st.sampled_from([None, {"name": "w", "podGroup": "g"}])),
    _at("spec", "schedulerName", value=st.sampled_from(["gangshare", "other"])),
    _at("spec", "priority", value=st.integers(0, 9)),
    _at("metadata", "name", value=st.sampled_from(["p", "q"])),
)


def edited(pod: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """A copy with this value at the path, whose parents are made where they are missing."""
    copied: Any = copy.deepcopy(pod)
    here = copied
    for step, following in itertools.pairwise(path):
        if isinstance(following, int):
            here[step] = here.get(step) or [{"name": "new"}]
        elif isinstance(step, str):
            here[step] = here.get(step) or {}
        here = here[step]
    here[path[-1]] = value
    return dict(copied)


@settings(max_examples=400)
@given(st.sampled_from(get_args(UnknownKeys)), st.sampled_from(PODS), st.lists(EDITS, max_size=3), EDITS, CLASSES)
def test_a_pod_is_read_as_if_there_were_no_others(
    unknown_keys: UnknownKeys, pod: dict[str, Any], edits: list[Edit], last: Edit, of_class: OfClass
) -> None:
    reader = AskReader(Settings(unknown_keys=unknown_keys))
    for edit in edits:
        pod = edited(pod, *edit)
    for each in (pod, edited(pod, *last)):
        found = decode_pod(msgspec.json.encode(each))
        for given_class in dict.fromkeys((None, of_class)):
            alone = reader.fresh(found, given_class)
            assert reader.read(found, given_class) == alone, "at first sight"
            assert reader.read(found, given_class) == alone, "once it is known"
