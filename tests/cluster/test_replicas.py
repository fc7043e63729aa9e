"""Two pairs of scheduler and extender, of which the leading one is lost in the middle of a burst."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from protos.contract import names
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare, Pair, a_gpu_pod
from tests.cluster.process import wait_for
from tests.cluster.replicas import EXTENDER, PAIRS, SHORT, both_well, go_on, kill, leading, stop, terminate

MACHINE: dict[str, Any] = {"defaults": {"model": "Tesla T4", "memMiB": 16384, "cc": "7.5"}, "gpus": [{}, {}]}
"""Two GPUs of 16 units: 40 pods of one unit nearly fill three of the four GPUs."""
PODS = 40
CREDENTIAL = "authentication.kubernetes.io/credential-id"


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Iterator[Gangshare]:
    machines = {"node-1": MACHINE, "node-2": MACHINE}
    running = Gangshare(cluster, machines, pairs=PAIRS, election=SHORT, extender_args=EXTENDER)
    yield running.start()
    running.stop()


@pytest.fixture
def pairs(sharing: Gangshare) -> Iterator[tuple[Pair, Pair]]:
    """The leading pair and the other one, both well."""
    yield both_well(sharing)
    sharing.cluster.delete_pods()


@contextlib.contextmanager
def creating(sharing: Gangshare, numbers: range) -> Iterator[None]:
    """Several clients create pods meanwhile, so that the scheduler always has some to do."""
    with ThreadPoolExecutor(4) as clients:
        pods = [a_gpu_pod(f"burst-{i}", mem=1) for i in numbers]
        requests = [clients.submit(sharing.cluster.create_pod, pod) for pod in pods]
        yield
    for request in requests:
        request.result()


def wait_bound(sharing: Gangshare, count: int) -> None:
    def bound() -> bool:
        return sum("nodeName" in pod["spec"] for pod in sharing.cluster.pods("default")) >= count

    wait_for(bound, 60, f"{count} bound pods", every=0.02)


def all_run(sharing: Gangshare) -> None:
    def running() -> bool:
        phases = [pod["status"]["phase"] for pod in sharing.cluster.pods("default")]
        assert phases.count("Running") == PODS, phases
        return True

    wait_for(running, 120, f"{PODS} running pods", every=0.5)


@pytest.mark.parametrize("loss", [terminate, kill])
def test_the_other_pair_goes_on_when_the_leading_one_ends(
    sharing: Gangshare, pairs: tuple[Pair, Pair], loss: Callable[[Pair], None]
) -> None:
    leader, other = pairs
    with creating(sharing, range(PODS)):
        wait_bound(sharing, 3)
        loss(leader)

    all_run(sharing)

    wait_for(lambda: leading(sharing) is other, 30, "lead of the other")
    sharing.check_books(other)


@pytest.mark.parametrize("seconds", [0.0, 12.0], ids=["until the other leads", "for long"])
def test_a_pair_that_was_stopped_starts_no_write_when_it_goes_on(
    sharing: Gangshare, pairs: tuple[Pair, Pair], seconds: float
) -> None:
    """Stopped shortly, its connections are still good, and requests begun before the stop are carried out after it.

    One bind is asked while it is stopped: the first thing that it finds to do.
    """
    stopped, other = pairs
    late = sharing.cluster.create_pod(a_gpu_pod("late", mem=1, schedulerName="nobody"))
    status, offered = answered(ask(stopped, "filter", {"Pod": late, "NodeNames": list(sharing.plugins)}))
    assert (status, bool(offered["NodeNames"])) == (200, True)
    with creating(sharing, range(30)):
        wait_bound(sharing, 3)
        stop(stopped)
    since, begun = time.monotonic(), checked(stopped)
    wait_for(lambda: other.metric("gangshare_leader") == 1, 30, "change of leader")
    time.sleep(max(0.0, seconds - (time.monotonic() - since)))
    uid, node = late["metadata"]["uid"], offered["NodeNames"][0]
    asked = ask(stopped, "bind", {"PodName": "late", "PodNamespace": "default", "PodUID": uid, "Node": node})
    with creating(sharing, range(30, PODS)):
        go_on(stopped)
        status, told = answered(asked)
        assert status == 503 or told.get("Error"), "it was not bound: no Lease, or by then the books have no room"

    all_run(sharing)
    wait_for(lambda: stopped.metric("gangshare_leader") == 0, 30, "extender that knows it lost the Lease")

    assert not written(sharing.cluster, stopped) - begun, "writes that were begun without the Lease"
    wait_for(lambda: leading(sharing) is other, 30, "lead of the other")
    sharing.check_books(other)

    def agreed() -> bool:
        sharing.check_books(stopped)
        return True

    wait_for(agreed, 30, "the same books at the one that was stopped")


def ask(pair: Pair, verb: str, body: Json) -> http.client.HTTPConnection:
    """Send a question as kube-scheduler does, without waiting for the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", pair.verbs, timeout=60)
    connection.request("POST", f"/scheduler/{verb}", json.dumps(body), {"Content-Type": "application/json"})
    return connection


def answered(asked: http.client.HTTPConnection) -> tuple[int, Json]:
    """Status and answer; a status other than 200 comes with words alone."""
    with contextlib.closing(asked):
        response = asked.getresponse()
        body = response.read()
    return response.status, json.loads(body) if response.status == 200 else {}


def checked(pair: Pair) -> Counter[str]:
    """How often a write to each path passed the extender's check so far, by its log."""
    lines = [json.loads(line) for line in pair.extender.text().splitlines() if line.startswith("{")]
    return Counter(line["path"] for line in lines if line["event"] == "write")


def written(cluster: Cluster, pair: Pair) -> Counter[str]:
    """How often the pair's extender wrote to each path, Leases left out, by the API server's audit log."""
    ours = [
        event
        for event in cluster.plane.audit()
        if event.get("userAgent") == names.EXTENDER
        and "/leases" not in event["requestURI"]
        and pair.credential in event["user"].get("extra", {}).get(CREDENTIAL, ())
    ]
    return Counter(event["requestURI"].partition("?")[0] for event in ours)
