"""KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1), decoded as strictly as in kube-scheduler."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec
import yaml

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|us|s)")
_UNIT = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_PREEMPTION = "DefaultPreemption"


class ConfigError(ValueError):
    """kube-scheduler would refuse to start with this configuration."""


def seconds(duration: str) -> float:
    """A Go duration (``1m30s``) in seconds; raises ConfigError for other texts."""
    parts = _DURATION.findall(duration)
    if duration == "0" or ("".join(n + u for n, u in parts) == duration and parts):
        return sum(float(number) * _UNIT[unit] for number, unit in parts)
    raise ConfigError(f"{duration!r} is no duration: expected a number with a unit, such as 5s or 1m30s")


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Refuses unknown fields; names are in camel case."""


class ManagedResource(_Strict, frozen=True):
    """A resource; the scheduler calls the extender for pods that request it."""

    name: str
    ignored_by_scheduler: bool = False


class Extender(_Strict, frozen=True):
    """One entry of ``extenders``."""

    url_prefix: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    preempt_verb: str = ""
    bind_verb: str = ""
    weight: int = 0
    enable_https: bool = msgspec.field(default=False, name="enableHTTPS")
    tls_config: dict[str, Any] | None = None
    http_timeout: str = "5s"
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False

    @property
    def timeout(self) -> float:
        return seconds(self.http_timeout) or 5.0


class _Plugin(_Strict, frozen=True):
    name: str
    weight: int = 0


class _PluginSet(_Strict, frozen=True):
    enabled: tuple[_Plugin, ...] = ()
    disabled: tuple[_Plugin, ...] = ()


_SchedulingPoint = Literal[
    "preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit"
]
_Point = Literal[_SchedulingPoint, "preBind", "bind", "postBind", "multiPoint"]


class _PluginConfig(_Strict, frozen=True):
    name: str
    args: dict[str, Any] = {}


class FitArgs(_Strict, frozen=True):
    """NodeResourcesFitArgs: resources that the in-tree fit ignores."""

    api_version: str = ""
    kind: Literal["NodeResourcesFitArgs", ""] = ""
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: dict[str, Any] | None = None

    def ignores(self, resource: str) -> bool:
        return resource in self.ignored_resources or resource.partition("/")[0] in self.ignored_resource_groups


class Profile(_Strict, frozen=True):
    """One scheduler name with its plugins."""

    scheduler_name: str = "default-scheduler"
    percentage_of_nodes_to_score: int | None = None
    plugins: dict[_Point, _PluginSet] = {}
    plugin_config: tuple[_PluginConfig, ...] = ()

    @property
    def fit_args(self) -> FitArgs:
        args = next((p.args for p in self.plugin_config if p.name == "NodeResourcesFit"), {})
        return msgspec.convert(args, FitArgs)

    @property
    def preempts(self) -> bool:
        """Whether the in-tree preemption is enabled, as it is by default."""
        sets = [self.plugins[point] for point in ("postFilter", "multiPoint") if point in self.plugins]
        enabled = any(p.name == _PREEMPTION for s in sets for p in s.enabled)
        return enabled or not any(p.name in (_PREEMPTION, "*") for s in sets for p in s.disabled)


class LeaderElection(_Strict, frozen=True):
    """Name and timing of the Lease."""

    leader_elect: bool = True
    lease_duration: str = "15s"
    renew_deadline: str = "10s"
    retry_period: str = "2s"
    resource_lock: Literal["leases"] = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"


class _ClientConnection(_Strict, frozen=True):
    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = ""
    qps: float = 50
    burst: int = 100


class Config(_Strict, frozen=True):
    """The whole file."""

    api_version: Literal["kubescheduler.config.k8s.io/v1"]
    kind: Literal["KubeSchedulerConfiguration"]
    parallelism: int = 16
    percentage_of_nodes_to_score: int | None = None
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    leader_election: LeaderElection = LeaderElection()
    client_connection: _ClientConnection = _ClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    delay_cache_until_active: bool = False
    profiles: tuple[Profile, ...] = (Profile(),)
    extenders: tuple[Extender, ...] = ()

    def ignored_resources(self) -> frozenset[str]:
        """Resources that the in-tree fit of every profile ignores, because an extender sets ignoredByScheduler."""
        return frozenset(m.name for e in self.extenders for m in e.managed_resources if m.ignored_by_scheduler)


def parse(text: str) -> Config:
    """The configuration of a file's text; raises ConfigError."""
    try:
        config = msgspec.convert(yaml.safe_load(text), Config)
        for profile in config.profiles:
            _ = profile.fit_args
    except (msgspec.ValidationError, yaml.YAMLError) as error:
        raise ConfigError(f"strict decoding error: {error}") from error
    _validate(config)
    return config


def _validate(config: Config) -> None:
    first, most = config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds
    if first < 1 or most < first:
        raise ConfigError(f"podInitialBackoffSeconds {first} must be at least 1, podMaxBackoffSeconds {most} no less")
    names = [p.scheduler_name for p in config.profiles]
    if len(set(names)) != len(names) or not all(names):
        raise ConfigError(f"profiles need different schedulerNames, got {names}")
    if sum(bool(e.bind_verb) for e in config.extenders) > 1:
        raise ConfigError("found multiple extenders with a bindVerb, only one is allowed")
    managed = [m.name for e in config.extenders for m in e.managed_resources]
    if len(set(managed)) != len(managed):
        raise ConfigError(f"managedResources repeat across extenders: {sorted(managed)}")
    for extender in config.extenders:
        if extender.prioritize_verb and extender.weight <= 0:
            raise ConfigError(f"extender {extender.url_prefix} needs a positive weight, got {extender.weight}")
        seconds(extender.http_timeout)
