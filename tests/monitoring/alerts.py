"""For each alert, series on which it fires and series on which it does not, as `promtool test rules` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.monitoring.files import RULES, rules

Series = Mapping[str, str]
"""Values, one a minute, by series; `1x9`: ten times 1, `0+1x9`: from 0 up, `_x9`: ten times nothing."""


class Case(NamedTuple):
    """When an alert fires, which labels it then has beside its severity, and what it says."""

    alert: str
    at: str
    """The time of both looks."""
    fires: Series
    quiet: Series
    labels: Mapping[str, str]
    summary: str


_LEADS = {'gangshare_leader{instance="a"}': "1x200", 'gangshare_leader{instance="b"}': "0x200"}
_CONTAINER = 'namespace="ml", pod="train", container="main", UUID="GPU-1", level="memory promised"'
_OF = {
    "namespace": "ml",
    "pod": "train",
    "container": "main",
    "UUID": "GPU-1",
    "level": "memory promised",
}
_USED, _PROMISED, _ENFORCED = (
    f"gangshare_container_gpu_{what}{{{_CONTAINER}}}"
    for what in ("memory_used_bytes", "memory_promised_bytes", "enforced")
)

_BIND = 'gangshare_verb_seconds_bucket{{verb="bind", le="{}"}}'.format
_BINDS = {_BIND("1"): "0x40", _BIND("2"): "0+60x40", _BIND("+Inf"): "0+60x40"}
_FAST_BINDS = {_BIND("1"): "0+40x40", _BIND("2"): "0+60x40", _BIND("+Inf"): "0+60x40"}
_STARTS = 'gangshare_gang_starts_total{outcome="planned"}'
_SLOW = "Half of the bind requests take longer than 1.5s."

CASES = (
    Case(
        "GangshareNoLeader",
        "10m",
        {'gangshare_leader{instance="a"}': "1x3 0x10", 'gangshare_leader{instance="b"}': "0x13"},
        {'gangshare_leader{instance="a"}': "1x5 0x10", 'gangshare_leader{instance="b"}': "0x5 1x10"},
        {},
        "No extender leads, so no pod is placed.",
    ),
    Case("GangshareNoLeader", "10m", {}, _LEADS, {}, "No extender leads, so no pod is placed."),
    Case(
        "GangshareSeveralLeaders",
        "10m",
        {'gangshare_leader{instance="a"}': "1x20", 'gangshare_leader{instance="b"}': "0x5 1x15"},
        {'gangshare_leader{instance="a"}': "1x9 0x11", 'gangshare_leader{instance="b"}': "0x8 1x12"},
        {},
        "2 extenders lead at the same time.",
    ),
    Case(
        "GangshareTargetDown",
        "15m",
        {'up{namespace="gangshare-system", instance="a:1"}': "1x2 0x15"},
        {'up{namespace="gangshare-system", instance="a:1"}': "1x10 0x10", 'up{namespace="other"}': "0x20"},
        {"namespace": "gangshare-system", "instance": "a:1"},
        "Prometheus cannot read the metrics of a:1.",
    ),
    Case(
        "GangshareInvariantViolated",
        "10m",
        {'gangshare_invariant_violations{instance="a"}': "0x5 2x10"},
        {'gangshare_invariant_violations{instance="a"}': "0x20"},
        {"instance": "a"},
        "2 invariants of the books are violated.",
    ),
    Case(
        "GangshareInternalErrors",
        "20m",
        {'gangshare_faults_total{place="engine"}': "_x15 1x20"},
        {'gangshare_faults_total{place="engine"}': "1x40"},
        {"place": "engine"},
        "Internal errors in engine.",
    ),
    Case(
        "GangshareInternalErrors",
        "20m",
        {'gangshare_faults_total{place="engine"}': "1x15 2x20"},
        {'gangshare_faults_total{place="engine"}': "0x40"},
        {"place": "engine"},
        "Internal errors in engine.",
    ),
    Case(
        "GangshareObjectSetAside",
        "10m",
        {'gangshare_quarantined{kind="pod"}': "0x2 3x20"},
        {'gangshare_quarantined{kind="pod"}': "0x2 3x4 0x20"},
        {"kind": "pod"},
        "3 objects of kind pod are set aside after an internal error.",
    ),
    Case(
        "GangshareWatchLost",
        "10m",
        {'gangshare_watching{path="/api/v1/pods"}': "1x2 0x20"},
        {'gangshare_watching{path="/api/v1/pods"}': "1x7 0x20"},
        {"path": "/api/v1/pods"},
        "The extender does not follow /api/v1/pods.",
    ),
    Case(
        "GangshareAllocationForged",
        "20m",
        {'gangshare_errors_total{kind="forged"}': "0x15 1x20"},
        {'gangshare_errors_total{kind="forged"}': "4x40", 'gangshare_errors_total{kind="newer"}': "0+1x40"},
        {},
        "Somebody else wrote an allocation on a pod.",
    ),
    Case(
        "GangshareErrors",
        "40m",
        {'gangshare_errors_total{kind="Evict"}': "_x10 1+1x40"},
        {'gangshare_errors_total{kind="Evict"}': "_x30 1x40", 'gangshare_errors_total{kind="forged"}': "0+1x60"},
        {"kind": "Evict"},
        "Input that cannot be used, or writes that failed: Evict.",
    ),
    Case("GangshareBindSlow", "30m", _BINDS, {**_BINDS, _STARTS: "0+1x40"}, {}, _SLOW),
    Case("GangshareBindSlow", "30m", _BINDS, _FAST_BINDS, {}, _SLOW),
    Case(
        "GangshareFilterSlow",
        "30m",
        {
            'gangshare_verb_seconds_bucket{verb="filter", le="1"}': "0x40",
            'gangshare_verb_seconds_bucket{verb="filter", le="2"}': "0+60x40",
            'gangshare_verb_seconds_bucket{verb="filter", le="+Inf"}': "0+60x40",
        },
        {
            'gangshare_verb_seconds_bucket{verb="filter", le="0.01"}': "0+60x40",
            'gangshare_verb_seconds_bucket{verb="filter", le="+Inf"}': "0+60x40",
            'gangshare_verb_seconds_bucket{verb="bind", le="0.01"}': "0x40",
            'gangshare_verb_seconds_bucket{verb="bind", le="+Inf"}': "0+60x40",
        },
        {},
        "One filter request in a hundred takes longer than 1.99s.",
    ),
    Case(
        "GangshareGangStartsFail",
        "40m",
        {'gangshare_gang_starts_total{outcome="undone"}': "0x20 6x30"},
        {
            'gangshare_gang_starts_total{outcome="undone"}': "0x20 1x30",
            'gangshare_gang_starts_total{outcome="planned"}': "0+9x50",
        },
        {},
        "6 starts of gangs were given up or undone in 30 minutes.",
    ),
    Case(
        "GangshareGangDegraded",
        "40m",
        {**_LEADS, 'gangshare_gangs{phase="Degraded", instance="a"}': "2x60"},
        {
            **_LEADS,
            'gangshare_gangs{phase="Degraded", instance="a"}': "2x20 0x40",
            'gangshare_gangs{phase="Degraded", instance="b"}': "2x60",
        },
        {},
        "2 gangs have fewer members than their minimum.",
    ),
    Case(
        "GangshareQueueStarved",
        "90m",
        {
            **_LEADS,
            'gangshare_queue_pods{queue="q", state="waiting", instance="a"}': "2x100",
            'gangshare_queue_share_ratio{queue="q", instance="a"}': "0.1x100",
        },
        {
            **_LEADS,
            'gangshare_queue_pods{queue="q", state="waiting", instance="a"}': "2x100",
            'gangshare_queue_share_ratio{queue="q", instance="a"}': "0.9x100",
        },
        {"queue": "q"},
        "Queue q waits and has less than half of its fair share.",
    ),
    Case(
        "GangshareQueueOverCapability",
        "30m",
        {**_LEADS, 'gangshare_queue_over_capability{queue="q", instance="a"}': "1x60"},
        {**_LEADS, 'gangshare_queue_over_capability{queue="q", instance="a"}': "0x60"},
        {"queue": "q"},
        "Queue q uses more than its capability.",
    ),
    Case(
        "GangsharePluginNotRegistered",
        "10m",
        {'gangshare_plugin_registered{node="n", resource="nvidia.com/gpu"}': "0x20"},
        {'gangshare_plugin_registered{node="n", resource="nvidia.com/gpu"}': "0x3 1x20"},
        {"node": "n", "resource": "nvidia.com/gpu"},
        "The kubelet of n does not follow the plugin's nvidia.com/gpu.",
    ),
    Case(
        "GangshareGpuUnhealthy",
        "10m",
        {'gangshare_plugin_gpus{node="n", health="sick"}': "1x20"},
        {
            'gangshare_plugin_gpus{node="n", health="ok"}': "7x20",
            'gangshare_plugin_gpus{node="n", health="mig"}': "1x20",
        },
        {"node": "n", "health": "sick"},
        "1 GPUs of n are sick.",
    ),
    Case(
        "GangshareAllocateRefused",
        "20m",
        {'gangshare_plugin_refusals_total{node="n", reason="NoRoom"}': "_x15 1x20"},
        {'gangshare_plugin_refusals_total{node="n", reason="NoRoom"}': "5x40"},
        {"node": "n", "reason": "NoRoom"},
        "The plugin of n refused pods: NoRoom.",
    ),
    Case(
        "GangshareMemoryLimitMissing",
        "10m",
        {'gangshare_plugin_isolated_containers{node="n", state="mismatch"}': "1x20"},
        {
            'gangshare_plugin_isolated_containers{node="n", state="mismatch"}': "0x20",
            'gangshare_plugin_isolated_containers{node="n", state="enforced"}': "9x20",
        },
        {"node": "n", "state": "mismatch"},
        "1 containers of n run without their memory limit.",
    ),
    Case(
        "GangshareMemoryOverPromise",
        "20m",
        {_USED: "1200x30", _PROMISED: "1000x30", _ENFORCED: "0x30"},
        {_USED: "1020x30", _PROMISED: "1000x30", _ENFORCED: "0x30"},
        _OF,
        "ml/train uses more GPU memory than it was promised.",
    ),
    Case(
        "GangshareGpuIdle",
        "20m",
        {f"gangshare_container_gpu_idle_seconds{{{_CONTAINER}}}": "7260x30"},
        {
            f"gangshare_container_gpu_idle_seconds{{{_CONTAINER}}}": "60x30",
            'gangshare_container_gpu_idle_seconds{level=""}': "9999x30",
        },
        _OF,
        "ml/train holds a GPU and is idle for 2h 1m 0s.",
    ),
    Case(
        "GangshareNotMeasured",
        "20m",
        {'gangshare_usage_age_seconds{node="n"}': "400x30", 'gangshare_usage_gpu_readable{node="n", gpu="0"}': "1x30"},
        {'gangshare_usage_age_seconds{node="n"}': "15x30", 'gangshare_usage_gpu_readable{node="n", gpu="0"}': "1x30"},
        {"node": "n"},
        "The use of GPUs of n is not measured.",
    ),
    Case(
        "GangshareNotMeasured",
        "20m",
        {'gangshare_usage_age_seconds{node="n"}': "15x30", 'gangshare_usage_gpu_readable{node="n", gpu="0"}': "0x30"},
        {},
        {"node": "n"},
        "The use of GPUs of n is not measured.",
    ),
)


def tests(folder: Path) -> Path:
    """The file of tests for promtool, written into the folder."""
    told = {rule["alert"]: rule for group in rules()["groups"] for rule in group["rules"]}
    cases = [each for case in CASES for each in _both(case, told[case.alert])]
    file = folder / "alerts.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": cases}))
    return file


def _both(case: Case, rule: Mapping[str, Any]) -> list[dict[str, Any]]:
    fired = {
        "exp_labels": {**case.labels, **rule["labels"]},
        "exp_annotations": {**rule["annotations"], "summary": case.summary},
    }
    return [
        _test(f"{case.alert} fires", case, case.fires, [fired]),
        _test(f"{case.alert} is quiet", case, case.quiet, []),
    ]


def _test(name: str, case: Case, series: Series, alerts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "alert_rule_test": [{"eval_time": case.at, "alertname": case.alert, "exp_alerts": alerts}],
    }
