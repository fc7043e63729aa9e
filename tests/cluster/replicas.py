"""Two pairs of scheduler and extender on one machine: who leads, and how the one that does is lost.

Leases are shorter here than kube-scheduler's defaults (6 s instead of 15 s, renewed within 4 s instead of 10 s), the
extenders know of the same renewDeadline. So a pair that is stopped for 12 s has lost the Lease for as many terms as
one that is stopped for 30 s with the defaults.
"""

from __future__ import annotations

from pathlib import Path

from tests.cluster.gangshare import Gangshare, Pair
from tests.cluster.process import Process, wait_for

SHORT = {"leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "1s"}
EXTENDER = ["--renew-deadline=4"]
PAIRS = ("first", "second")


def both_well(sharing: Gangshare) -> tuple[Pair, Pair]:
    """The leading pair and the other one, once both are up."""
    for pair in sharing.pairs.values():
        revive(pair)
    leader = wait_for(lambda: leading(sharing), 30, "leading pair")
    (other,) = (pair for pair in sharing.pairs.values() if pair is not leader)
    return leader, other


def revive(pair: Pair) -> None:
    """Start again what has ended, as the kubelet would."""
    if not pair.extender.alive:
        pair.start_extender()
    scheduler = pair.scheduler
    assert scheduler is not None
    if not scheduler.process.alive:
        scheduler.process.start()
    scheduler.process.wait_until(lambda: scheduler.text("/healthz") == "ok", 60, f"healthy {scheduler.process.name}")


def leading(sharing: Gangshare) -> Pair:
    """The pair that acts: its scheduler holds the Lease, and its extender knows."""
    alive = [pair for pair in sharing.pairs.values() if pair.extender.alive]
    found = [pair for pair in alive if pair.metric("gangshare_leader") == 1]
    assert len(found) == 1, f"{len(found)} pairs lead"
    return found[0]


def processes(pair: Pair) -> list[Process]:
    assert pair.scheduler is not None
    return [pair.scheduler.process, pair.extender]


def terminate(pair: Pair) -> None:
    for process in processes(pair):
        process.stop()


def kill(pair: Pair) -> None:
    for process in processes(pair):
        process.kill()


def stop(pair: Pair) -> None:
    """SIGSTOP, and wait until neither process runs any more."""
    for process in processes(pair):
        process.pause()
    for process in processes(pair):
        wait_for(lambda: stat(process.pid) == "T", 5, f"stopped {process.name}", every=0.001)  # noqa: B023


def go_on(pair: Pair) -> None:
    """SIGCONT, when another leads already: kube-scheduler ends as soon as it knows."""
    scheduler, extender = processes(pair)
    scheduler.resume()
    extender.resume()
    wait_for(lambda: not scheduler.alive, 60, f"end of {scheduler.name}, which lost the Lease")


def stat(pid: int) -> str:
    """The process' state, one letter. Source: proc_pid_stat(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
