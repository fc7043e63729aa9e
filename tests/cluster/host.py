"""What a run borrows from the machine: a number of its own, free ports, kernel settings, a service address.

All of it is given back: by the run itself, or by the next one that finds a dead run's folder (`remnants`).
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import subprocess
from pathlib import Path

from tests.cluster.process import HarnessError

_SLOTS = 32
_PORTS = range(20000, 32000)  # below the kernel's ephemeral range, so that no outgoing connection takes one
_SYSCTLS = (  # what kubelet and the CNI plugin ptp write
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
_SAVED_SYSCTLS = Path("/tmp/gangshare-sysctls.json")


class Slot:
    """A number no other living run of this machine has, held by an abstract socket that dies with this process."""

    def __init__(self) -> None:
        for number in range(_SLOTS):
            with contextlib.suppress(OSError):
                self._socket = _hold("cluster", number)
                self.number = number
                return
        raise HarnessError(f"all {_SLOTS} slots for clusters are taken on this machine")

    def pod_subnet(self, node: int) -> str:
        return f"10.{160 + self.number}.{node}.0/24"

    @property
    def service_range(self) -> str:
        return f"10.{96 + self.number}.0.0/16"

    @property
    def service_ip(self) -> str:
        """The API server's address as pods see it."""
        return f"10.{96 + self.number}.0.1"

    def release(self) -> None:
        self._socket.close()


def _hold(kind: str, number: int) -> socket.socket:
    """An abstract socket of that name; raises OSError while another process of this machine holds it."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(f"\0gangshare-{kind}-{number}")
    except OSError:
        held.close()
        raise
    return held


def _nobody_runs() -> bool:
    for number in range(_SLOTS):
        try:
            _hold("cluster", number).close()
        except OSError:
            return False
    return True


_held_ports: list[socket.socket] = []
"""One socket for each port this process took: a server that starts seconds later must still find its port free."""


def free_port() -> int:
    """A TCP port that nobody listens on, and that no call on this machine returns again while this process lives."""
    for _ in range(100):
        port = random.choice(_PORTS)
        with contextlib.suppress(OSError), socket.create_server(("0.0.0.0", port)):
            _held_ports.append(_hold("port", port))
            return port
    raise HarnessError(f"no free port found between {_PORTS.start} and {_PORTS.stop}")


def save_sysctls() -> None:
    """Note the kernel settings nodes change, unless a run that lives has noted them."""
    if not _SAVED_SYSCTLS.exists():
        present = [name for name in _SYSCTLS if (Path("/proc/sys") / name).exists()]
        _SAVED_SYSCTLS.write_text(json.dumps({name: (Path("/proc/sys") / name).read_text() for name in present}))


def restore_sysctls() -> None:
    """Put the noted settings back, if no run is left. Call after the slot's release."""
    if _nobody_runs() and _SAVED_SYSCTLS.exists():
        for name, value in json.loads(_SAVED_SYSCTLS.read_text()).items():
            (Path("/proc/sys") / name).write_text(value)
        _SAVED_SYSCTLS.unlink()


def redirect_service(run: str, service_ip: str, port: int) -> None:
    """Lead `service_ip`:443 to this machine's `port`, for pods and for host-network pods, in place of kube-proxy."""
    for chain in ("PREROUTING", "OUTPUT"):
        rule = ["-d", service_ip, "-p", "tcp", "--dport", "443", "-m", "comment", "--comment", run]
        _nat("-A", chain, *rule, "-j", "REDIRECT", "--to-ports", str(port))


def remove_redirects(run: str) -> None:
    """Take away every rule that carries the run's id."""
    listed = subprocess.run(["iptables", "-t", "nat", "-S"], capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        rule = line.replace('"', "").split()
        if line.startswith("-A") and run in rule:
            _nat("-D", *rule[1:])


def _nat(*arguments: str) -> None:
    done = subprocess.run(["iptables", "-w", "-t", "nat", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise HarnessError(f"iptables {' '.join(arguments)}: {done.stderr.strip()}")
