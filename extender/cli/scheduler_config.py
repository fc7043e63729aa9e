"""kube-scheduler's configuration for each layout, as plain values.

Sources: KubeSchedulerConfiguration kubescheduler.config.k8s.io/v1 (Kubernetes 1.25 and newer) and its validation: at
most one extender entry may bind, and only one entry may manage a resource. Layout `own` manages no resources, so it
sees every pod and can give bind an entry with its own timeout. Layout `shared` has one entry for all pods that name our
resources. A second entry only filters the other pods, so that we see gang members without GPUs; kube-scheduler ignores
it while the extender is away.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
import yaml

from extender.cli.errors import CommandError
from protos.contract import mig, names

Layout = Literal["own", "shared", "gpushare", "policy"]

DEFAULT_URL = "http://127.0.0.1:12345"
KUBEADM_KUBECONFIG = "/etc/kubernetes/scheduler.conf"
ANSWER_S, BIND_S, SHARED_S, OBSERVE_S = 5, 120, 30, 2
"""Timeouts of an answer from memory, of a bind that may wait, of an entry that does both, and of the filter for pods
without GPUs, which must not be delayed."""
CHECKED_PERCENT = 1
"""Of the nodes, for each pod; kube-scheduler checks at least 100. A pod that fits on none of them is nominated."""
MAX_BACKOFF_S = 2
CLIENT_QPS = 2000
_RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")

NOTES: dict[Layout, str] = {
    "own": "Pods choose this scheduler by schedulerName: {profiles}. The cluster's own scheduler stays as it is.",
    "shared": "For the cluster's one scheduler. The second entry shows us gang members without GPUs. Limits: one"
    " timeout for filter and bind; no in-tree preemption for GPUs; no sampling of nodes, which is slow on large"
    " clusters.",
    "gpushare": "Drop-in for gpushare-scheduler-extender: its resource, paths and answers.",
    "policy": "Legacy Policy v1 for kube-scheduler before 1.23 (--policy-config-file). UNTESTED.",
}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a cluster."""

    extender_url: str = DEFAULT_URL
    """The URL at which kube-scheduler reaches the extender."""
    resources: names.Resources = names.Resources()
    """Our extended resources."""
    kubeconfig: str = ""
    """kube-scheduler's credentials; "" = the pod's service account."""
    tls_files: str = ""
    """Folder on kube-scheduler's machine with its client certificate (tls.crt, tls.key) and our CA (ca.crt); "" = no
    TLS."""
    profiles: tuple[str, ...] = (names.PROFILE,)
    """The schedulerNames of layout `own`."""
    mig_profiles: tuple[str, ...] = ()
    """MIG profiles beside those that NVIDIA documents."""

    @property
    def managed(self) -> tuple[str, ...]:
        """The resources that the books of a node count, by name: kube-scheduler knows no patterns."""
        return *self.resources.managed, *sorted(set(mig.resources(self.mig_profiles)).difference(self.resources.mig))

    def __post_init__(self) -> None:
        url = urlsplit(self.extender_url)
        if url.scheme not in ("http", "https") or not url.netloc or url.query or url.fragment:
            raise CommandError(f"--extender-url is {self.extender_url!r}: expected one like {DEFAULT_URL}")
        for name in self.resources.all:
            if not _RESOURCE.fullmatch(name) or "kubernetes.io/" in name:
                raise CommandError(
                    f"a --resource-* flag is {name!r}: expected a domain and a name, like {names.GPU_MEM}"
                )
        try:
            mig.resources(self.mig_profiles)
        except ValueError as error:
            raise CommandError(f"--mig-profile: {error}") from error
        for name in self.profiles:
            if not _NAME.fullmatch(name):
                raise CommandError(f"--profile is {name!r}: expected a schedulerName like {names.PROFILE}")
        for what, all_names in (("the --resource-* flags", self.resources.all), ("the --profile flags", self.profiles)):
            if not all_names or len(set(all_names)) < len(all_names):
                raise CommandError(f"{what} are {', '.join(all_names) or 'none'}: expected different names")


def defaults(layout: Layout) -> Options:
    """The default options of a layout."""
    if layout == "own":
        return Options()
    resources = names.GPUSHARE_RESOURCES if layout == "gpushare" else names.Resources()
    return Options(resources=resources, kubeconfig=KUBEADM_KUBECONFIG)


def configuration(layout: Layout, options: Options) -> dict[str, Any]:
    """The configuration of a layout, in the order of the file; raises CommandError."""
    match layout:
        case "own":
            return _own(options)
        case "shared":
            return _cluster_wide(options, _shared_entry(options), _observer(options))
        case "gpushare":
            return _cluster_wide(options, _gpushare_entry(options))
        case "policy":
            if options.tls_files:
                raise CommandError(f"TLS files are {options.tls_files!r}: expected none, a Policy has no TLS")
            return {"apiVersion": "v1", "kind": "Policy", "extenders": [_legacy(_shared_entry(options))]}


def render(layout: Layout, options: Options) -> str:
    """The text of the file: YAML that begins with a note, or JSON for the legacy Policy."""
    content = configuration(layout, options)
    if layout == "policy":
        return json.dumps(content, indent=2) + "\n"
    note = NOTES[layout].format(profiles=" or ".join(options.profiles))
    notes = textwrap.wrap(note, 118, initial_indent="# ", subsequent_indent="# ")
    return "\n".join([*notes, yaml.safe_dump(content, sort_keys=False)])


def _own(options: Options) -> dict[str, Any]:
    decide = _entry(options, "scheduler", ANSWER_S, "filter", "preempt")
    bind = _entry(options, "scheduler", BIND_S, "bind")
    lease = {"resourceNamespace": "kube-system", "resourceName": names.SCHEDULER}
    profiles = [_profile(name, options.managed) for name in options.profiles]
    return _file(options, lease, profiles, decide, bind, sampling={"percentageOfNodesToScore": CHECKED_PERCENT})


def _cluster_wide(options: Options, *entries: dict[str, Any]) -> dict[str, Any]:
    return _file(options, {}, [{"schedulerName": "default-scheduler"}], *entries)


def _file(
    options: Options,
    lease: dict[str, str],
    profiles: list[dict[str, Any]],
    *entries: dict[str, Any],
    sampling: dict[str, int] | None = None,
) -> dict[str, Any]:
    connection: dict[str, Any] = {"kubeconfig": options.kubeconfig} if options.kubeconfig else {}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {**connection, "qps": CLIENT_QPS, "burst": CLIENT_QPS},
        **(sampling or {}),
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": MAX_BACKOFF_S,
        "leaderElection": {"leaderElect": True, **lease},
        "profiles": profiles,
        "extenders": [entry | _tls(options) for entry in entries],
    }


def _profile(name: str, managed: Sequence[str]) -> dict[str, Any]:
    """Leaves our resources out of the in-tree fit, which on a full cluster would leave the extender no node.

    They are named one by one: a pod that names an unknown resource of our domain stays pending.
    """
    fit = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "NodeResourcesFitArgs",
        "ignoredResources": list(managed),
    }
    return {
        "schedulerName": name,
        "plugins": {"postFilter": {"disabled": [{"name": "DefaultPreemption"}]}},
        "pluginConfig": [{"name": "NodeResourcesFit", "args": fit}],
    }


def _entry(options: Options, path: str, timeout_s: int, *verbs: str) -> dict[str, Any]:
    """An extender entry; each verb is called at its own name under the path."""
    url = options.extender_url.rstrip("/")
    if options.tls_files:
        url = f"https://{url.partition('://')[2]}"
    calls = {f"{verb}Verb": verb for verb in verbs}
    return {"urlPrefix": f"{url}/{path}", **calls, "httpTimeout": f"{timeout_s}s", "nodeCacheCapable": True}


def _shared_entry(options: Options) -> dict[str, Any]:
    managed = [{"name": name, "ignoredByScheduler": True} for name in options.managed]
    return {**_entry(options, "scheduler", SHARED_S, "filter", "preempt", "bind"), "managedResources": managed}


def _observer(options: Options) -> dict[str, Any]:
    """Shows us pods that name none of our resources. Without an answer, kube-scheduler places them alone."""
    return {**_entry(options, "scheduler", OBSERVE_S, "filter"), "filterVerb": "observe", "ignorable": True}


def _gpushare_entry(options: Options) -> dict[str, Any]:
    """gpushare leaves the sum of a node's memory to the in-tree fit, and has no preempt."""
    managed = [{"name": options.resources.mem, "ignoredByScheduler": False}]
    entry = _entry(options, "gpushare-scheduler", SHARED_S, "filter", "bind")
    return {**entry, "managedResources": managed, "ignorable": False}


def _legacy(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry in the format of Policy v1, with timeouts in nanoseconds."""
    https = entry["urlPrefix"].startswith("https:")
    return {**entry, "enableHttps": https, "httpTimeout": SHARED_S * 1_000_000_000, "ignorable": False}


def _tls(options: Options) -> dict[str, Any]:
    """Source: kubescheduler.config.k8s.io/v1, Extender.enableHTTPS and ExtenderTLSConfig."""
    if not options.tls_files:
        return {}
    files = {"certFile": "tls.crt", "keyFile": "tls.key", "caFile": "ca.crt"}
    return {"enableHTTPS": True, "tlsConfig": {key: f"{options.tls_files}/{file}" for key, file in files.items()}}
