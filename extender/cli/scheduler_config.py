"""kube-scheduler's configuration for each way of running beside it, as plain values.

Sources: KubeSchedulerConfiguration kubescheduler.config.k8s.io/v1 (Kubernetes 1.25 and newer) and its validation: at
most one extender entry may bind, and a managed resource may stand in one entry only. Hence `own`, which manages no
resources and so sees every pod, can give bind an entry with a timeout of its own, while `shared` has one entry for all
pods that name our resources. Beside it stands one for the others, which only filters: thus members of a gang that ask
no GPUs are seen, and kube-scheduler passes over it when the extender is away.
"""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
import yaml

from extender.cli.errors import CommandError
from protos.contract import names

Layout = Literal["own", "shared", "gpushare", "policy"]

DEFAULT_URL = "http://127.0.0.1:12345"
KUBEADM_KUBECONFIG = "/etc/kubernetes/scheduler.conf"
ANSWER_S, BIND_S, SHARED_S, OBSERVE_S = 5, 120, 30, 2
"""Timeouts: of an answer from memory, of a bind that may be held, of one entry that does both; and of an answer for
want of which nobody's pod may wait for long."""
MAX_BACKOFF_S = 2
CLIENT_QPS = 2000
_RESOURCE = re.compile(r"(?P<group>[a-z0-9]([-a-z0-9.]*[a-z0-9])?)/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")

NOTES: dict[Layout, str] = {
    "own": "Pods choose this scheduler by schedulerName: {profiles}. The cluster's own scheduler stays as it is.",
    "shared": "For the cluster's one scheduler. The second entry shows us pods without GPUs, for the sake of those that"
    " belong to gangs. Limits: one timeout serves filter and bind; no in-tree preemption for GPUs; it samples no nodes,"
    " which costs time on large clusters.",
    "gpushare": "Drop-in for gpushare-scheduler-extender: its resource, paths and answers.",
    "policy": "Legacy Policy v1 for kube-scheduler before 1.23 (--policy-config-file). UNTESTED.",
}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What may differ between clusters."""

    extender_url: str = DEFAULT_URL
    """Where kube-scheduler reaches the extender."""
    resources: names.Resources = names.Resources()
    """The extended resource names that are served."""
    kubeconfig: str = ""
    """kube-scheduler's credentials; "" = the pod's service account."""
    tls_files: str = ""
    """Folder on kube-scheduler's machine with its certificate for us (tls.crt, tls.key) and the CA of ours (ca.crt);
    "" = no TLS."""
    profiles: tuple[str, ...] = (names.PROFILE,)
    """The schedulerNames that a scheduler of our own serves."""

    def __post_init__(self) -> None:
        url = urlsplit(self.extender_url)
        if url.scheme not in ("http", "https") or not url.netloc or url.query or url.fragment:
            raise CommandError(f"extender URL is {self.extender_url!r}: expected one like {DEFAULT_URL}")
        for name in self.resources.all:
            if not _RESOURCE.fullmatch(name) or "kubernetes.io/" in name:
                raise CommandError(f"resource is {name!r}: expected a domain and a name, like {names.GPU_MEM}")
        if len(set(self.resources.all)) < len(self.resources.all):
            raise CommandError(f"resources are {', '.join(self.resources.all)}: expected different names")
        for name in self.profiles:
            if not _NAME.fullmatch(name):
                raise CommandError(f"profile is {name!r}: expected a schedulerName like {names.PROFILE}")
        if not self.profiles or len(set(self.profiles)) < len(self.profiles):
            raise CommandError(f"profiles are {', '.join(self.profiles) or 'none'}: expected different names")


def defaults(layout: Layout) -> Options:
    """What each layout has where nothing else is said."""
    if layout == "own":
        return Options()
    resources = names.GPUSHARE_RESOURCES if layout == "gpushare" else names.Resources()
    return Options(resources=resources, kubeconfig=KUBEADM_KUBECONFIG)


def configuration(layout: Layout, options: Options) -> dict[str, Any]:
    """The configuration of that layout, in the order in which it reads best; raises CommandError."""
    match layout:
        case "own":
            return _own(options)
        case "shared":
            return _cluster_wide(options, _shared_entry(options), _observer(options))
        case "gpushare":
            return _cluster_wide(options, _gpushare_entry(options))
        case "policy":
            if options.tls_files:
                raise CommandError(f"TLS files are {options.tls_files!r}: expected none, for a Policy without TLS")
            return {"apiVersion": "v1", "kind": "Policy", "extenders": [_legacy(_shared_entry(options))]}


def render(layout: Layout, options: Options) -> str:
    """The file's text: YAML that begins with what one should know, or JSON for the legacy Policy."""
    content = configuration(layout, options)
    if layout == "policy":
        return json.dumps(content, indent=2) + "\n"
    told = NOTES[layout].format(profiles=" or ".join(options.profiles))
    notes = textwrap.wrap(told, 118, initial_indent="# ", subsequent_indent="# ")
    return "\n".join([*notes, yaml.safe_dump(content, sort_keys=False)])


def _own(options: Options) -> dict[str, Any]:
    decide = _entry(options, "scheduler", ANSWER_S, filterVerb="filter", preemptVerb="preempt")
    bind = _entry(options, "scheduler", BIND_S, bindVerb="bind")
    return {
        **_head(options),
        "leaderElection": {
            "leaderElect": True,
            "resourceNamespace": "kube-system",
            "resourceName": names.SCHEDULER,
        },
        "profiles": [_profile(name, options.resources) for name in options.profiles],
        "extenders": [entry | _tls(options) for entry in (decide, bind)],
    }


def _head(options: Options) -> dict[str, Any]:
    connection: dict[str, Any] = {"kubeconfig": options.kubeconfig} if options.kubeconfig else {}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {**connection, "qps": CLIENT_QPS, "burst": CLIENT_QPS},
        "percentageOfNodesToScore": 100,
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": MAX_BACKOFF_S,
    }


def _profile(name: str, resources: names.Resources) -> dict[str, Any]:
    """Our resources are left out of the in-tree fit: on a full cluster it would leave us no node to be asked about."""
    fit: dict[str, Any] = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "NodeResourcesFitArgs"}
    others = [name for name in resources.all if not name.startswith(f"{names.DOMAIN}/")]
    if others:
        fit["ignoredResources"] = others
    if len(others) < len(resources.all):
        fit["ignoredResourceGroups"] = [names.DOMAIN]
    return {
        "schedulerName": name,
        "plugins": {"postFilter": {"disabled": [{"name": "DefaultPreemption"}]}},
        "pluginConfig": [{"name": "NodeResourcesFit", "args": fit}],
    }


def _cluster_wide(options: Options, *entries: dict[str, Any]) -> dict[str, Any]:
    return {
        **_head(options),
        "leaderElection": {"leaderElect": True},
        "profiles": [{"schedulerName": "default-scheduler"}],
        "extenders": [entry | _tls(options) for entry in entries],
    }


def _entry(options: Options, path: str, seconds: int, **verbs: str) -> dict[str, Any]:
    """Asks us these verbs under that path, and waits so long for an answer."""
    prefix = {"urlPrefix": _prefix(options, path)}
    return {**prefix, **verbs, "httpTimeout": f"{seconds}s", "nodeCacheCapable": True}


def _shared_entry(options: Options) -> dict[str, Any]:
    managed = [{"name": name, "ignoredByScheduler": True} for name in options.resources.all]
    entry = _entry(options, "scheduler", SHARED_S, filterVerb="filter", preemptVerb="preempt", bindVerb="bind")
    return {**entry, "managedResources": managed}


def _observer(options: Options) -> dict[str, Any]:
    """Shows us pods that name none of our resources. Without an answer they are nobody's but kube-scheduler's."""
    return {**_entry(options, "scheduler", OBSERVE_S, filterVerb="observe"), "ignorable": True}


def _gpushare_entry(options: Options) -> dict[str, Any]:
    """gpushare leaves the sum of a node's memory to the in-tree fit, and has no preempt."""
    managed = [{"name": options.resources.mem, "ignoredByScheduler": False}]
    entry = _entry(options, "gpushare-scheduler", SHARED_S, filterVerb="filter", bindVerb="bind")
    return {**entry, "managedResources": managed, "ignorable": False}


def _legacy(entry: dict[str, Any]) -> dict[str, Any]:
    """The same entry as Policy v1 writes it: durations are integers, in nanoseconds."""
    https = entry["urlPrefix"].startswith("https:")
    return {**entry, "enableHttps": https, "httpTimeout": SHARED_S * 1_000_000_000, "ignorable": False}


def _tls(options: Options) -> dict[str, Any]:
    """Source: kubescheduler.config.k8s.io/v1, Extender.enableHTTPS and ExtenderTLSConfig."""
    if not options.tls_files:
        return {}
    files = {"certFile": "tls.crt", "keyFile": "tls.key", "caFile": "ca.crt"}
    return {"enableHTTPS": True, "tlsConfig": {key: f"{options.tls_files}/{file}" for key, file in files.items()}}


def _prefix(options: Options, path: str) -> str:
    url = options.extender_url.rstrip("/")
    if options.tls_files:
        url = f"https://{url.partition('://')[2]}"
    return f"{url}/{path}"
