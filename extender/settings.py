"""The extender's settings, read from flags and the environment."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Annotated, Literal

import msgspec

from extender.engine.types import settings as engine
from protos.contract import names
from protos.contract.flag import Flag, listed, option
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

    kubeconfig: Annotated[
        str, Flag("Kubeconfig file. Without one: the service account, or else $KUBECONFIG.", metavar="FILE")
    ] = ""
    listen: Annotated[
        Address, Flag("Address of the port that kube-scheduler calls.", address, "HOST:PORT", "127.0.0.1:12345")
    ] = Address("127.0.0.1", 12345)
    """On loopback unless `verbs_client_ca` is set: any client that reaches this port can have pods bound."""
    verbs_cert: Annotated[str, Flag("TLS certificate of --listen, in PEM.", metavar="FILE")] = ""
    verbs_key: Annotated[str, Flag("Private key of --verbs-cert.", metavar="FILE")] = ""
    verbs_client_ca: Annotated[
        str, Flag("CA of the client certificate that kube-scheduler must show at --listen.", metavar="FILE")
    ] = ""
    status_listen: Annotated[
        Address,
        Flag(
            "Address of probes and metrics. Pages that show pods are served on loopback only.",
            address,
            "HOST:PORT",
            ":12346",
        ),
    ] = Address("", 12346)
    open_allocations: Annotated[
        bool, Flag("Show which pod has which GPUs in the metrics, without authorization (gangshare_allocation_info).")
    ] = False
    secure_listen: Annotated[
        Address | None,
        Flag(
            "Address of all pages over TLS, for callers that the API server authorizes. Empty disables.",
            _optional_address,
            "HOST:PORT",
        ),
    ] = None
    secure_cert: Annotated[
        str,
        Flag(
            "TLS certificate of --secure-listen, in PEM. Without one, a certificate is made at start.", metavar="FILE"
        ),
    ] = ""
    secure_key: Annotated[str, Flag("Private key of --secure-cert.", metavar="FILE")] = ""
    gate_webhook_listen: Annotated[
        Address | None,
        Flag(
            "Address of the webhook that puts the scheduling gate on new pods of gangs, over TLS. Empty disables.",
            _optional_address,
            "HOST:PORT",
        ),
    ] = None
    visibility_listen: Annotated[
        Address | None,
        Flag(
            "Address of the aggregated API visibility.gangshare.io, over TLS, for the API server. Empty disables.",
            _optional_address,
            "HOST:PORT",
        ),
    ] = None
    conflicting_leases: Annotated[
        tuple[str, ...],
        Flag(
            "Leases of other schedulers with the same schedulerNames (NAMESPACE/NAME), separated by commas. Nothing is "
            "placed while one of them is renewed.",
            listed,
        ),
    ] = ()
    leader_election: Annotated[
        Literal["scheduler", "own", "none"],
        Flag(
            "Which replica writes. scheduler: the one whose kube-scheduler holds its Lease; own: the one that holds "
            "the extender's own Lease; none: every one."
        ),
    ] = "scheduler"
    lease_name: Annotated[str, Flag("Name of the Lease for --leader-election.")] = names.SCHEDULER
    lease_namespace: Annotated[str, Flag("Namespace of the Lease for --leader-election.")] = "kube-system"
    lease_identity_prefix: Annotated[
        str,
        Flag("Start of the holderIdentity of its kube-scheduler.  [default: the hostname and _]"),
    ] = ""
    renew_deadline_s: Annotated[float, Flag("renewDeadline, in seconds, of kube-scheduler's configuration.")] = 10.0
    """Seconds after the last renewal in which the Lease counts."""
    scheduler_healthz: Annotated[
        str, Flag("URL of kube-scheduler's health check. /livez fails when it fails.", metavar="URL")
    ] = ""
    traces_endpoint: Annotated[
        str,
        Flag(
            "Where traces of pods go by OTLP over HTTP, like http://collector:4318/v1/traces. Empty disables.",
            metavar="URL",
        ),
    ] = ""
    traces_sample: Annotated[float, Flag("Part of all pods whose traces are sent, 0 to 1.")] = 1.0
    log_format: Annotated[Format, Flag("Format of the log. auto: console on a terminal, or else json.")] = "auto"
    log_level: Annotated[
        Level, Flag("Lowest level that is logged. debug shows each filter request and each successful bind.")
    ] = "info"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.renew_deadline_s <= 0:
            raise SettingsError(f"--renew-deadline is {self.renew_deadline_s}: expected a number of seconds above zero")
        for lease in self.conflicting_leases:
            if lease.count("/") != 1 or not all(lease.split("/")):
                raise SettingsError(f"--conflicting-leases has {lease!r}: expected namespace/name")
        if self.scheduler_healthz and not self.scheduler_healthz.startswith(("http://", "https://")):
            raise SettingsError(
                f"--scheduler-healthz is {self.scheduler_healthz!r}: expected a URL, http:// or https://"
            )
        if self.traces_endpoint and not self.traces_endpoint.startswith(("http://", "https://")):
            raise SettingsError(f"--traces-endpoint is {self.traces_endpoint!r}: expected a URL, http:// or https://")
        if not 0 <= self.traces_sample <= 1:
            raise SettingsError(f"--traces-sample is {self.traces_sample}: expected a number from 0 to 1")
        for together in (("secure_cert", "secure_key"), ("verbs_cert", "verbs_key", "verbs_client_ca")):
            values = {name: getattr(self, name) for name in together}
            if any(values.values()) and not all(values.values()):
                shown = ", ".join(f"{option(name)} is {value!r}" for name, value in values.items())
                raise SettingsError(f"{shown}: expected all of them or none")
        if not self.listen.on_loopback and not self.verbs_client_ca:
            raise SettingsError(
                f"--listen is {self.listen}: expected an address on loopback, or --verbs-client-ca: any client that "
                "reaches this port can have pods bound"
            )
        if self.gate_webhook_listen is not None and not self.scheduler_names:
            raise SettingsError(
                "--scheduler-names is empty: expected the schedulers whose pods --gate-webhook-listen gates"
            )

    @property
    def identity_prefix(self) -> str:
        """Start of the holderIdentity of this replica's kube-scheduler. Source: cmd/kube-scheduler, `hostname_uuid`."""
        return self.lease_identity_prefix or f"{socket.gethostname()}_"
