"""Looks at the pods again and again, and remembers what no look may show: a GPU given twice, a gang that stays half."""

from __future__ import annotations

import time
from collections import Counter

from protos.contract import allocation, inventory, names
from tests.cluster.api import Json
from tests.cluster.beside import Beside
from tests.cluster.cluster import Cluster

EVERY_S = 0.2


class Witness(Beside):
    """A context manager that looks in the background; gangs are those of our own annotations."""

    every_s = EVERY_S

    def __init__(self, cluster: Cluster) -> None:
        self.looks = 0
        self.half_s: dict[str, float] = {}
        """By gang: for how long it was bound in part at most, what has done its work apart."""
        self.doubled: list[str] = []
        """GPUs that were given to more pods than they can hold."""
        self._cluster = cluster
        self._since: dict[str, float] = {}
        self._units: dict[str, int] = {}

    @property
    def longest(self) -> tuple[float, str]:
        """For how many seconds a gang was half at most, and which."""
        return max(((seconds, name) for name, seconds in self.half_s.items()), default=(0.0, ""))

    def check(self, seconds: float) -> None:
        """Nothing was given twice, and no gang was half for longer."""
        assert self.looks, "it has looked"
        assert self.doubled == []
        longest, gang = self.longest
        assert longest < seconds, f"{gang} was bound in part for {longest:.1f} s"

    def _turn(self) -> None:
        now = time.monotonic()
        try:
            pods, nodes = self._cluster.pods("default"), self._cluster.api.items("/api/v1/nodes")
        except OSError:
            return  # the API server is slow at times
        self.looks += 1
        self._units |= {gpu: units for node in nodes for gpu, units in _gpus(node)}
        self._look_for_doubles(pods)
        self._look_for_halves(pods, now)

    def _look_for_doubles(self, pods: list[Json]) -> None:
        given: Counter[str] = Counter()
        for pod in pods:
            if pod["status"].get("phase") in ("Succeeded", "Failed"):
                continue
            found = allocation.decode(pod["metadata"].get("annotations", {}).get(names.ALLOCATION))
            for shares in found.containers.values() if found else ():
                for share in shares:
                    given[share.uuid] += self._units[share.uuid] if share.whole else share.mem
        self.doubled += [f"{gpu}: {units} units" for gpu, units in given.items() if units > self._units[gpu]]

    def _look_for_halves(self, pods: list[Json], now: float) -> None:
        placed: Counter[str] = Counter()
        done: Counter[str] = Counter()
        least: dict[str, int] = {}
        for pod in pods:
            told, phase = pod["metadata"].get("annotations", {}), pod["status"].get("phase")
            if names.GROUP not in told or "deletionTimestamp" in pod["metadata"]:
                continue
            gang = told[names.GROUP]
            least[gang] = int(told[names.MIN_MEMBER])
            done[gang] += phase == "Succeeded"
            placed[gang] += "nodeName" in pod["spec"] and phase not in ("Succeeded", "Failed")
        for gang, count in placed.items():
            if 0 < count < least[gang] - done[gang]:
                began = self._since.setdefault(gang, now)
                self.half_s[gang] = max(self.half_s.get(gang, 0.0), now - began)
            else:
                self._since.pop(gang, None)
        for gang in self._since.keys() - placed.keys():
            del self._since[gang]


def _gpus(node: Json) -> list[tuple[str, int]]:
    told = inventory.decode(node["metadata"].get("annotations", {}).get(names.GPUS))
    return [(gpu.uuid, gpu.mem) for gpu in told.gpus] if told else []
