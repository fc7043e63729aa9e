"""A real control plane without kubelets or controllers: nodes are objects, pods are scheduled and never run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections import ChainMap, defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from extender.cli import scheduler_config
from extender.engine.types.refusals import NOT_LOOKED_AT
from protos.contract import names
from protos.kube import credentials, paths
from protos.kube.client import ApiClient
from tests.bench.bodies import Json
from tests.cluster import assets, host
from tests.cluster.controlplane import ControlPlane, Scheduler
from tests.cluster.gangshare import ROOT, get
from tests.cluster.process import Process
from tests.cluster.run import Run

ANSWER_S = 120.0
READY_S = 120.0
QUIET_S, QUIET_TURNS = 0.5, 4
BASE = ROOT / "manifests" / "base"
ACCOUNT = ("common/namespace.yaml", "extender/rbac.yaml", "extender/flow-control.yaml", "scheduler/rbac.yaml")
PODS = paths.pods("default")
NOW = {"gracePeriodSeconds": "0"}


class Plane:
    """An async context manager; `api` is its administrator's client."""

    api: ApiClient

    def __init__(self, *, audited: bool = False) -> None:
        """`writes` can be told of an audited one only. Raises MissingAsset when this machine cannot."""
        provided = assets.provide()
        self._run = Run()
        # it would put a taint on every node, which no controller takes away here
        taintless = ["--disable-admission-plugins=TaintNodesByCondition"]
        self._plane = ControlPlane(self._run, provided, audited=audited, apiserver_args=taintless)
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            self._plane.launch()
            server = self._plane.apiserver
            server.wait_until(lambda: self._plane.api.text("/readyz") == "ok", READY_S, "ready API server")
            access = await credentials.load(str(self._plane.admin_kubeconfig))
            self.api = await self._stack.enter_async_context(ApiClient(access, answer_s=ANSWER_S))
            self._account = self._installed()
        except BaseException:
            self._run.close()
            raise
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self._stack.aclose()
        self._run.close()

    def _installed(self) -> Path:
        """Create the account that the manifests give to extender and kube-scheduler; a kubeconfig with its token."""
        self._kubectl("create", *(f"--filename={BASE / file}" for file in ACCOUNT))
        return self._plane.token_kubeconfig("pair", self._plane.token(names.NAMESPACE, "gangshare-scheduler"))

    def define(self, *files: str) -> None:
        """Create the definitions that are in these files of the manifests."""
        given = [f"--filename={BASE / file}" for file in files]
        self._kubectl("create", *given)
        self._kubectl("wait", "--for=condition=Established", "--timeout=30s", *given)

    def _kubectl(self, *argv: str) -> None:
        program = [str(self._plane.assets.program("kubectl")), f"--kubeconfig={self._plane.admin_kubeconfig}"]
        done = subprocess.run([*program, *argv], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"kubectl {argv[0]} failed: {done.stderr}")

    async def create(self, path: str, objects: Iterable[Json]) -> None:
        """POST all of them, many at a time."""
        await together(self.api.post(path, body) for body in objects)

    async def delete_pods(self) -> None:
        """All of them, at once and for good."""
        await self.api.delete(PODS, params=NOW)

    async def uids(self) -> dict[str, str]:
        """All pods, by name."""
        listed = await self.api.fetch(PODS, _lists)
        return {pod.metadata.name: pod.metadata.uid for pod in listed.items}

    async def settled(self, extender: Extender) -> None:
        """Wait until the extender has nothing to do: until everybody's watch has told it of everything."""
        quiet, deadline = 0, time.monotonic() + READY_S
        while quiet < QUIET_TURNS:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the extender has no rest after {READY_S:g} s")
            before = cpu_seconds(extender.process)
            await asyncio.sleep(QUIET_S)
            quiet = quiet + 1 if cpu_seconds(extender.process) - before < 0.1 * QUIET_S else 0

    def writes(self, user_agent: str) -> int:
        """How many writes of this client the API server has answered so far."""
        return sum(event.get("userAgent", "").startswith(user_agent) for event in self._plane.audit())

    def extender(self, *options: str) -> Extender:
        """An extender without any rival and with these options, not started yet."""
        return Extender(self._run, self._account, options)

    def scheduler(self, extender: Extender | None) -> Scheduler:
        """A kube-scheduler with the configuration that we print, asking `extender` or, without one, nobody.

        It elects no leader, as it is the only one.
        """
        options = scheduler_config.Options(extender_url=extender.url if extender else scheduler_config.DEFAULT_URL)
        config: Json = {**scheduler_config.configuration("own", options), "leaderElection": {"leaderElect": False}}
        if extender is None:
            del config["extenders"]
        return self.scheduler_of(config)

    def scheduler_of(self, config: Json) -> Scheduler:
        """A kube-scheduler with this configuration."""
        return self._plane.scheduler("with" if "extenders" in config else "without", config, kubeconfig=self._account)

    def requests(self) -> dict[str, float]:
        """How many requests but watches the API server has answered so far, by verb and resource."""
        found: defaultdict[str, float] = defaultdict(float)
        for family in text_string_to_metric_families(self._plane.api.text("/metrics")):
            for sample in family.samples:
                of = sample.labels
                if sample.name == "apiserver_request_total" and of["verb"] != "WATCH" and of["resource"]:
                    found["/".join(filter(None, (f"{of['verb']} {of['resource']}", of["subresource"])))] += sample.value
        return found

    def apiserver_cpu(self) -> float:
        """Seconds of CPU of the API server so far."""
        return cpu_seconds(self._plane.apiserver)


class Extender:
    """The extender's process, as shipped."""

    def __init__(self, run: Run, kubeconfig: Path, options: Sequence[str]) -> None:
        self._verbs, self.status = host.free_port(), host.free_port()
        argv = [sys.executable, "-m", "extender", "extender", f"--kubeconfig={kubeconfig}", "--leader-election=none"]
        argv += [f"--listen=127.0.0.1:{self._verbs}", f"--status-listen=127.0.0.1:{self.status}", "--log-format=json"]
        argv += options
        self.process: Process = run.process("extender", argv, guest=True, cwd=ROOT)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._verbs}"

    def start(self) -> float:
        """Start it; seconds until it was ready."""
        began = time.monotonic()
        self.process.start()
        while not self._ready():
            if not self.process.alive or time.monotonic() - began > READY_S:
                raise RuntimeError(f"the extender is not ready:\n{self.process.text()[-2000:]}")
            time.sleep(0.02)
        return time.monotonic() - began

    def _ready(self) -> bool:
        try:
            return bool(get(self.status, "/readyz"))
        except OSError:
            return False

    def peak_mib(self) -> float:
        """Its peak resident memory so far."""
        return peak_mib(self.process.pid)


def peak_mib(pid: int) -> float:
    """The peak resident memory of a process so far (VmHWM)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) / 1024


def cpu_seconds(process: Process) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def together(work: Iterable[Coroutine[Any, Any, Any]], at_once: int = 64) -> None:
    """Carry out all of it, so many at a time."""
    rest = iter(work)

    async def worker() -> None:
        for one in rest:
            await one

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(worker())


class _Meta(msgspec.Struct):
    name: str
    uid: str
    resource_version: str = msgspec.field(name="resourceVersion")


class _Condition(msgspec.Struct):
    type: str
    status: str
    message: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


class _Spec(msgspec.Struct):
    node: str = msgspec.field(name="nodeName", default="")


class Seen(msgspec.Struct):
    """A pod as a watch shows it."""

    metadata: _Meta
    spec: _Spec
    status: _Status

    @property
    def refused(self) -> bool:
        """Whether kube-scheduler said that it fits nowhere, and it is not nominated to a node that was not checked."""
        return any(
            c.type == "PodScheduled" and c.status == "False" and NOT_LOOKED_AT.sentence not in c.message
            for c in self.status.conditions
        )


class _Line(msgspec.Struct):
    type: str
    object: Seen


class _ListMeta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[Seen]


_lists, _lines = msgspec.json.Decoder(_List), msgspec.json.Decoder(_Line)


class PodWatch:
    """What happens to the pods from now on, in the background: when each was first seen bound, refused, gone."""

    def __init__(self, api: ApiClient, version: str, every_s: float) -> None:
        self._api, self._version, self._every_s = api, version, every_s
        self.bound: dict[str, float] = {}
        self.refused: dict[str, float] = {}
        self.gone: dict[str, float] = {}
        """By name; seconds of the monotonic clock."""
        self._news = asyncio.Event()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, api: ApiClient, *, every_s: float = 0.0) -> AsyncIterator[PodWatch]:
        """Looks so often at most: who measures what a busy machine does is to take little of it."""
        listed = await api.fetch(PODS, _lists, params={"limit": "1"})
        made = cls(api, listed.metadata.resource_version, every_s)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(made._follow())
            yield made
            task.cancel()

    async def _follow(self) -> None:
        """The API server ends a watch whose reader is slow for a moment: it goes on where it ended."""
        while True:
            params = {"watch": "1", "resourceVersion": self._version}
            async with self._api.stream(PODS, params=params, silence_s=ANSWER_S) as chunks:
                await self._read(chunks)

    async def _read(self, chunks: AsyncIterator[bytes]) -> None:
        rest = b""
        async for chunk in chunks:
            now = time.monotonic()
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                told = _lines.decode(line)
                self._version = told.object.metadata.resource_version
                if told.type == "DELETED":
                    self.gone.setdefault(told.object.metadata.name, now)
                self._take(told.object, now)
            self._news.set()
            if self._every_s:
                await asyncio.sleep(self._every_s)

    def _take(self, pod: Seen, now: float) -> None:
        if pod.spec.node:
            self.bound.setdefault(pod.metadata.name, now)
        elif pod.refused:
            self.refused.setdefault(pod.metadata.name, now)

    async def until_bound(self, names: Iterable[str]) -> None:
        await self._until(set(names), self.bound)

    async def until_gone(self, count: int) -> None:
        """Wait until so many are."""
        await self._when(lambda: len(self.gone) >= count, lambda: f"{len(self.gone)} pods gone, expected {count}")

    async def until_refused(self, names: Iterable[str]) -> None:
        await self._until(set(names), self.refused)

    async def verdict(self, name: str) -> bool:
        """Wait until the pod is bound or refused; whether it is bound."""
        await self._until({name}, ChainMap(self.bound, self.refused))
        return name in self.bound

    async def _until(self, names: set[str], seen: Mapping[str, float]) -> None:
        """Raises TimeoutError that names who is missing."""

        def missing() -> str:
            left = sorted(names - seen.keys())
            return f"{len(left)} pods not seen so: {left[:3]} …"

        await self._when(lambda: names <= seen.keys(), missing)

    async def _when(self, holds: Callable[[], bool], otherwise: Callable[[], str]) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                while not holds():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError as error:
            raise TimeoutError(f"{otherwise()}, after {ANSWER_S:g} s") from error
