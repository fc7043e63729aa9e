"""The extender's settings, read from flags and the environment."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Annotated, Literal

import msgspec

from extender.engine.types import settings as engine
from protos.contract import names
from protos.contract.flag import Flag, listed
from protos.contract.shared_settings import SettingsError
from protos.logs import Format, Level

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^\[\]:\s]*):(?P<port>\d{1,5})")


class Address(msgspec.Struct, frozen=True):
    """Where to listen. An empty host means every interface, port 0 any free port."""

    host: str
    port: int

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine, or this pod, can reach it."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(text: str) -> Address:
    """The address in `host:port`, `:port` or `[v6]:port`; raises SettingsError."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise SettingsError(f"{text!r} is no address: expected host:port like 127.0.0.1:12345, or :12345 for all hosts")
    return Address(match["host"].strip("[]"), int(match["port"]))


def _optional_address(text: str) -> Address | None:
    return address(text) if text else None


class Settings(engine.Settings, frozen=True, kw_only=True):
    """All settings of the extender, including those of the engine."""

    kubeconfig: Annotated[str, Flag("Kubeconfig file; else the service account, else $KUBECONFIG.")] = ""
    listen: Annotated[Address, Flag("Address for kube-scheduler.", address, "HOST:PORT", "127.0.0.1:12345")] = Address(
        "127.0.0.1", 12345
    )
    """On loopback unless `verbs_client_ca` is set: any client that reaches this port can have pods bound."""
    verbs_cert: Annotated[str, Flag("TLS certificate of --listen, in PEM.", metavar="FILE")] = ""
    verbs_key: Annotated[str, Flag("The key of that certificate.", metavar="FILE")] = ""
    verbs_client_ca: Annotated[
        str, Flag("The CA of the client certificate that kube-scheduler must show at --listen.", metavar="FILE")
    ] = ""
    status_listen: Annotated[
        Address, Flag("Probes and metrics; pages that show pods on loopback only.", address, "HOST:PORT", ":12346")
    ] = Address("", 12346)
    open_allocations: Annotated[
        bool, Flag("Show in the metrics, to everybody, which pod has which GPUs (gangshare_allocation_info).")
    ] = False
    secure_listen: Annotated[
        Address | None,
        Flag(
            "All pages over TLS, for callers that the API server authorizes. Empty disables.",
            _optional_address,
            "HOST:PORT",
        ),
    ] = None
    secure_cert: Annotated[str, Flag("TLS certificate, in PEM; else one is made at start.", metavar="FILE")] = ""
    secure_key: Annotated[str, Flag("The key of that certificate.", metavar="FILE")] = ""
    gate_webhook_listen: Annotated[
        Address | None,
        Flag(
            "Webhook that puts the scheduling gate on new pods of gangs, over TLS. Empty disables.",
            _optional_address,
            "HOST:PORT",
        ),
    ] = None
    conflicting_leases: Annotated[
        tuple[str, ...],
        Flag(
            "Leases (NAMESPACE/NAME, …) of schedulers with the same names: nothing is placed while one is renewed.",
            listed,
        ),
    ] = ()
    leader_election: Annotated[
        Literal["scheduler", "own", "none"],
        Flag("scheduler: write while our scheduler holds its Lease; own: by a Lease of our own; none: always."),
    ] = "scheduler"
    lease_name: Annotated[str, Flag("The scheduler's Lease, or our own.")] = names.SCHEDULER
    lease_namespace: Annotated[str, Flag("Namespace of that Lease.")] = "kube-system"
    lease_identity_prefix: Annotated[
        str, Flag("How our scheduler's holderIdentity begins.  [default: this machine's hostname and _]")
    ] = ""
    renew_deadline_s: Annotated[float, Flag("The scheduler's renewDeadline, in seconds.")] = 10.0
    """Seconds after the last renewal in which the Lease counts."""
    scheduler_healthz: Annotated[str, Flag("URL of the scheduler's health check; /livez asks it too.")] = ""
    log_format: Annotated[Format, Flag("auto: console on a terminal, else json.")] = "auto"
    log_level: Annotated[Level, Flag("The least important line that is written; debug shows each filter.")] = "info"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.renew_deadline_s <= 0:
            raise SettingsError(f"renew_deadline_s is {self.renew_deadline_s}: expected a number of seconds above zero")
        for lease in self.conflicting_leases:
            if lease.count("/") != 1 or not all(lease.split("/")):
                raise SettingsError(f"conflicting_leases has {lease!r}: expected namespace/name")
        if self.scheduler_healthz and not self.scheduler_healthz.startswith(("http://", "https://")):
            raise SettingsError(f"scheduler_healthz is {self.scheduler_healthz!r}: expected a URL, http:// or https://")
        for together in (("secure_cert", "secure_key"), ("verbs_cert", "verbs_key", "verbs_client_ca")):
            values = {name: getattr(self, name) for name in together}
            if any(values.values()) and not all(values.values()):
                shown = ", ".join(f"{name} is {value!r}" for name, value in values.items())
                raise SettingsError(f"{shown}: expected all of them or none")
        if not self.listen.on_loopback and not self.verbs_client_ca:
            raise SettingsError(
                f"listen is {self.listen}: expected an address on loopback, or verbs_client_ca: any client that "
                "reaches this port can have pods bound"
            )
        if self.gate_webhook_listen is not None and not self.scheduler_names:
            raise SettingsError(
                "scheduler_names is empty: expected the schedulers whose pods gate_webhook_listen gates"
            )

    @property
    def identity_prefix(self) -> str:
        """How the holderIdentity of our own scheduler begins. Source: cmd/kube-scheduler, `hostname_uuid`."""
        return self.lease_identity_prefix or f"{socket.gethostname()}_"
