"""The extender's settings: one frozen value, filled from flags and the environment, printed at start, read by all."""

import ipaddress
import math
import re
import socket
from typing import Literal

import msgspec

from extender.engine.settings import LEAVING, LOCALITY_LABELS, ElasticQuotas
from protos.contract import names, priority

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^\[\]:\s]*):(?P<port>\d{1,5})")
_LABEL = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""A label's key, as Kubernetes takes it."""

_WHOLE = re.compile(r"-?[0-9]{1,10}")


class SettingsError(ValueError):
    """A setting that cannot be used: names it, its value and what was expected."""


class Address(msgspec.Struct, frozen=True):
    """Where to listen; an empty host means every interface, port 0 any free one."""

    host: str
    port: int

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine, or this pod, reaches it."""
        return self.host == "localhost" or _is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All that the extender can be told."""

    kubeconfig: str = ""
    """File or files of the API server's credentials; "" = the pod's service account, else $KUBECONFIG."""
    listen: Address = Address("127.0.0.1", 12345)
    """The scheduler's verbs. On loopback unless `verbs_client_ca` is set: whoever reaches it can have pods bound."""
    verbs_cert: str = ""
    """File of the certificate that this port shows to the scheduler, in PEM; "" = no TLS."""
    verbs_key: str = ""
    """File of that certificate's key."""
    verbs_client_ca: str = ""
    """File of the CA that vouches for the scheduler's certificate; nobody else is let in."""
    status_listen: Address = Address("", 12346)
    """Probes and metrics; what shows tenants' pods on loopback alone."""
    open_allocations: bool = False
    """Tell everybody who reads the metrics whose pods are on which GPUs, too."""
    secure_listen: Address | None = None
    """The same over TLS, all of it for those for whom the API server vouches; None = no such port."""
    secure_cert: str = ""
    """File of its certificate, in PEM; "" = one that is made at start and that nobody else vouches for."""
    secure_key: str = ""
    """File of that certificate's key."""
    gate_webhook_listen: Address | None = None
    """The webhook that puts our scheduling gate on new pods of groups, over TLS; None = no webhook."""
    resources: names.Resources = names.Resources()
    """The extended resource names that pods ask for."""
    unit_mib: int = names.DEFAULT_UNIT_MIB
    """MiB per unit of GPU memory; the same in the whole cluster."""
    slices_per_gpu: int = names.DEFAULT_SLICES_PER_GPU
    """Time slices per GPU, where a node does not say."""
    gpushare: bool = False
    """Serve as gpushare does, on its paths and with its annotations, beside our own."""
    offer_limit: int = 16
    """How many equally good nodes a filter answer names at most."""
    band: int = 10
    """Scores at most this far below the best (of 1000) count as equally good."""
    in_tree_preferences: bool = False
    """Offer all nodes that are about equally good to every pod, not `offer_limit` of them (slower)."""
    scheduler_names: tuple[str, ...] = ()
    """The schedulers that ask us; other schedulers' pods count in no gang until they are bound. () = every one."""
    rival_leases: tuple[str, ...] = ()
    """Leases (namespace/name) of other schedulers that serve the same names; we wait while one is renewed."""
    whole_s: float = 30.0
    """Seconds from a gang's first Binding until it must be whole, else it is undone."""
    slot_s: float = 300.0
    """Seconds for which the room of a lost member is kept for the one that comes in its place; 0: not at all."""
    keep_s: float = 300.0
    """Seconds for which room is kept at most for a pod that waits and whose annotation asks for it; 0: not at all."""
    preemption: bool = True
    """Evict pods of lower priority for pods and gangs that wait; takes a `keep_s` above 0."""
    min_run_s: float = 30.0
    """Seconds that a pod or gang runs at least before others take its room."""
    group_priority: int = priority.LEAST
    """The PriorityClass of a PodGroup gives its gang so much at most, or as much as the highest of its members has."""
    elastic_quotas: ElasticQuotas = "deserved"
    """What counts of an ElasticQuota, which a tenant may have made: `limits`: its maximum; `deserved`: its minimum too,
    as its part; `guaranteed`: that is kept for it where it lends nothing."""
    scale_in_s: float = 120.0
    """Seconds that an elastic job's operator has to let workers go whose room others take, and no less than they have
    to end; then they are evicted. 0: they are at once."""
    grow_after_s: float = 60.0
    """Seconds for which there must be room for more workers of an elastic job that nobody else waits for, until it gets
    them; 0: it does not."""
    backfill_s: float = 300.0
    """Seconds that the first of a queue waits until room is kept for it, which those behind it must not delay; 0: none
    is kept."""
    bind_timeout_s: float = 120.0
    """httpTimeout of the scheduler's extender entry that binds, in seconds; a gang's binds are kept waiting half as
    long at most."""
    largest_gang: int = 2000
    """Members of a gang that may start together at most; kube-scheduler must bring them into bind, one after the other,
    in half of `bind_timeout_s`."""
    locality_labels: tuple[str, ...] = LOCALITY_LABELS
    """Labels that say where a node is, from near to far: members of a gang are kept together by them. () = none."""
    leaving: tuple[str, ...] = LEAVING
    """Keys of taints or labels, or key=value, by which a node is about to go: it is left in time. () = none."""
    leader_election: Literal["scheduler", "own", "none"] = "scheduler"
    """`scheduler`: write only while our scheduler holds its Lease; `own`: replicas apart from any scheduler elect one
    among them; `none`: there is only one scheduler and one extender, ever."""
    lease_name: str = names.SCHEDULER
    """The Lease: the scheduler's (its leaderElection.resourceName), or our own."""
    lease_namespace: str = "kube-system"
    """The namespace of that Lease."""
    lease_identity_prefix: str = ""
    """How the holderIdentity of our scheduler begins; "" = this machine's hostname and `_`, as kube-scheduler does."""
    renew_deadline_s: float = 10.0
    """Seconds since the last renewal after which the Lease no longer counts (the scheduler's renewDeadline)."""
    scheduler_healthz: str = ""
    """URL of the scheduler's own health check, asked by /livez; "" = none."""
    log_format: Literal["auto", "console", "json"] = "auto"
    """`auto`: console on a terminal, else json."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Nothing less important is logged."""

    def __post_init__(self) -> None:
        for name, least in (
            ("unit_mib", 1),
            ("slices_per_gpu", 1),
            ("offer_limit", 1),
            ("band", 0),
            ("largest_gang", 1),
        ):
            value = getattr(self, name)
            if value < least:
                raise SettingsError(f"{name} is {value}: expected {least} or more")
        if self.band > 1000:
            raise SettingsError(f"band is {self.band}: expected at most 1000, thousandths of a GPU")
        for name in ("renew_deadline_s", "bind_timeout_s", "whole_s"):
            if getattr(self, name) <= 0:
                raise SettingsError(f"{name} is {getattr(self, name)}: expected a number of seconds above zero")
        for name in ("slot_s", "keep_s", "min_run_s", "scale_in_s", "grow_after_s", "backfill_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise SettingsError(f"{name} is {getattr(self, name)}: expected a number of seconds from zero on")
        if not priority.LEAST <= self.group_priority <= priority.HIGHEST:
            raise SettingsError(f"group_priority is {self.group_priority}: expected at most {priority.HIGHEST}")
        for label in self.locality_labels:
            if not _LABEL.fullmatch(label) or self.locality_labels.count(label) > 1:
                raise SettingsError(f"locality_labels has {label!r}: expected keys of labels, each once")
        keys = [sign.partition("=")[0] for sign in self.leaving]
        for key in keys:
            if not _LABEL.fullmatch(key) or keys.count(key) > 1:
                raise SettingsError(f"leaving has {key!r}: expected keys of taints or labels, each once")
        for lease in self.rival_leases:
            if lease.count("/") != 1 or not all(lease.split("/")):
                raise SettingsError(f"rival_leases has {lease!r}: expected namespace/name")
        if self.scheduler_healthz and not self.scheduler_healthz.startswith(("http://", "https://")):
            raise SettingsError(f"scheduler_healthz is {self.scheduler_healthz!r}: expected a URL, http:// or https://")
        for together in (("secure_cert", "secure_key"), ("verbs_cert", "verbs_key", "verbs_client_ca")):
            said = [getattr(self, name) for name in together]
            if any(said) and not all(said):
                shown = ", ".join(f"{name} is {value!r}" for name, value in zip(together, said, strict=True))
                raise SettingsError(f"{shown}: expected all of them or none")
        if not self.listen.on_loopback and not self.verbs_client_ca:
            raise SettingsError(
                f"listen is {self.listen}: expected an address on loopback, or verbs_client_ca: whoever reaches this "
                "port can have pods bound"
            )
        if self.gate_webhook_listen is not None and not self.scheduler_names:
            raise SettingsError("scheduler_names is empty: expected those whose pods gate_webhook_listen shall gate")
        if len(set(self.resources.all)) < len(self.resources.all):
            raise SettingsError(f"resources are {', '.join(self.resources.all)}: expected different names")

    @property
    def identity_prefix(self) -> str:
        """How the holderIdentity of our own scheduler begins. Source: cmd/kube-scheduler, `hostname_uuid`."""
        return self.lease_identity_prefix or f"{socket.gethostname()}_"


def address(text: str) -> Address:
    """The address in `host:port`, `:port` or `[v6]:port`; raises SettingsError."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or int(found["port"]) > 65535:
        raise SettingsError(f"{text!r} is no address: expected host:port like 127.0.0.1:12345, or :12345 for all hosts")
    return Address(found["host"].strip("[]"), int(found["port"]))


def group_priority(text: str) -> int:
    """What the PriorityClass of a PodGroup may give: `members`, `any` or a number; raises SettingsError."""
    named = {"members": priority.LEAST, "any": priority.HIGHEST}
    if text in named:
        return named[text]
    if not _WHOLE.fullmatch(text) or not priority.LEAST <= int(text) <= priority.HIGHEST:
        raise SettingsError(f"{text!r} is no priority: expected members, any or a number up to {priority.HIGHEST}")
    return int(text)
