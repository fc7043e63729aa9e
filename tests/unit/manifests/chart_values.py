"""The chart's values.schema.json and the table in its README, both made from values.yaml.

`python -m tests.unit.manifests.chart_values` writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml
from typer.core import TyperOption

from deviceplugin.answers import Strategy
from deviceplugin.isolation.levels import Mode, OnMismatch
from deviceplugin.mig.strategy import Strategy as MigStrategy
from tests.unit.docs import options
from tests.unit.manifests.conftest import CHART, Json

SCHEMA, README = CHART / "values.schema.json", CHART / "README.md"
BEGIN, END = "<!-- The table is made from values.yaml. -->\n", "<!-- The end of the table. -->\n"
_KEY = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z]+):")
TEXTS: Json = {"type": "object", "additionalProperties": {"type": "string"}}
OBJECT: Json = {"type": "object"}
STRINGS: Json = {"type": "array", "items": {"type": "string", "minLength": 1}}
SECRETS: Json = {"type": "array", "items": {"type": "object", "required": ["name"]}}
NAMED: Json = {"type": "array", "items": {"type": "object", "required": ["name"]}}
DURATION: Json = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?s$"}
ELECTION: Json = {
    "type": "object",
    "properties": dict.fromkeys(("leaseDuration", "renewDeadline", "retryPeriod"), DURATION),
    "additionalProperties": False,
}
ENUMS: dict[str, list[str]] = {
    "layout": ["own", "shared", "gpushare", "standalone"],
    "gate": ["none", "policy", "webhook"],
    "policies.unknownKeys": ["warn", "deny"],
    "policies.gpuVisibility": ["deny", "warn"],
    "plugin.deviceListStrategy": [str(one) for one in Strategy],
    "plugin.migStrategy": [str(one) for one in MigStrategy],
    "plugin.isolation.mode": [str(one) for one in Mode],
    "plugin.isolation.onMismatch": [str(one) for one in OnMismatch],
}
"""Values that are one of a few words, by their path."""
BY_PATH: dict[str, Json] = {
    "imagePullSecrets": SECRETS,
    "global.imagePullSecrets": {"type": "array", "items": {"type": ["string", "object"]}},
    "scheduler.names": STRINGS | {"minItems": 1},
    "scheduler.leaderElection": ELECTION,
    "memoryUnit": {"type": ["string", "integer"], "pattern": "^([0-9]*)([GM]iB)?$"},
    "scheduler.replicas": {"type": "integer", "minimum": 0},
    "slicesPerGpu": {"type": "integer", "minimum": 1},
    "page.proxy": NAMED,
    "usage.idleEventsSeconds": {"type": "number", "minimum": 0},
    "usage.markIdleSeconds": {"type": "number", "minimum": 0},
    "scheduler.podDisruptionBudget.minAvailable": {"type": ["integer", "string"]},
}
BY_KEY: dict[str, Json] = {
    "pullPolicy": {"enum": ["", "Always", "IfNotPresent", "Never"]},
    "tag": {"type": "string"},
    "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "extraArgs": STRINGS,
    "extraEnv": NAMED,
    "extraVolumes": NAMED,
    "extraVolumeMounts": {"type": "array", "items": {"type": "object", "required": ["name", "mountPath"]}},
    "tolerations": {"type": "array", "items": OBJECT},
    "topologySpreadConstraints": {"type": "array", "items": OBJECT},
    **dict.fromkeys(("annotations", "labels", "podAnnotations", "podLabels", "nodeSelector"), TEXTS),
    **dict.fromkeys(("commonLabels", "commonAnnotations"), TEXTS),
    **dict.fromkeys(("affinity", "config", "podSecurityContext", "resources", "updateStrategy"), OBJECT),
}
PROCESSES = {"extender.args": "gangshare extender", "plugin.args": "gangshare plugin", "usage.args": "gangshare usage"}
"""Where options of our processes are values."""
BY_VALUES = {
    *("gpushare", "resource-mem", "resource-slice", "resource-whole", "resource-shared", "memory-unit"),
    *("slices-per-gpu", "scheduler-names", "renew-deadline", "listen", "gate-webhook-listen", "visibility-listen"),
    *("node-name", "fake", "standalone", "device-list-strategy", "isolation", "host-root", "on-isolation-mismatch"),
    *("mps-dir", "serve-pod-resources", "kubelet-dir", "pod-resources", "overuse-events", "idle-events", "port"),
    *("status-listen", "metrics-port", "kubeconfig"),
    *("secure-cert", "secure-key", "verbs-cert", "verbs-key", "verbs-client-ca"),
}
"""Options that other values of the chart set, or that need ports, probes or files which the chart does not make."""
PODS_DEMAND = "isolation"
"""An option of the extender that no other value sets."""


class Value(NamedTuple):
    """A line of the table."""

    path: str
    default: Any
    meaning: str


def values() -> Json:
    found: Json = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


def meanings() -> dict[str, str]:
    """The comment above each key, by its path."""
    found, path, comment = {}, list[str](), ""
    for line in (CHART / "values.yaml").read_text().splitlines():
        if line.strip().startswith("# "):
            comment = f"{comment} {line.strip()[2:]}".strip()
        elif match := _KEY.match(line):
            path = [*path[: len(match["indent"]) // 2], match["key"]]
            if comment:
                found[".".join(path)] = comment
            comment = ""
        else:
            comment = ""
    return found


def leaves(given: Json, before: str = "") -> Iterator[tuple[str, Any]]:
    """The values that users set, by their paths: those that a comment explains."""
    told = meanings()
    for key, value in given.items():
        path = f"{before}{key}"
        if isinstance(value, dict) and path not in told:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


def schema() -> str:
    made = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart gangshare",
        **_closed(values(), ""),
    }
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def _closed(given: Json, before: str) -> Json:
    told = meanings()
    fields = {}
    for key, value in given.items():
        path = f"{before}{key}"
        inner = isinstance(value, dict) and path not in told
        fields[key] = _closed(value, f"{path}.") if inner else _leaf(path, value) | {"description": told[path]}
    if before == "plugin.":
        fields["configs"] = _configs(fields)
    if not before:
        fields["global"] = fields["global"] | {"additionalProperties": True}
    return {"type": "object", "properties": fields, "additionalProperties": False}


ONE_FOR_ALL = ("configs", "serviceAccount", "migDynamicGpus")
"""Values of the plugin that are those of all nodes."""


def _configs(fields: Json) -> Json:
    """Values of the plugin, except for those of all nodes, by the names of configurations."""
    inner = {name: field for name, field in fields.items() if name not in ONE_FOR_ALL}
    return {
        "description": fields["configs"]["description"],
        "type": "object",
        "propertyNames": {"pattern": "^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$"},
        "additionalProperties": {"type": "object", "properties": inner, "additionalProperties": False},
    }


def _leaf(path: str, value: Any) -> Json:
    if path in PROCESSES:
        return _options(PROCESSES[path])
    if path in ENUMS:
        return {"enum": ENUMS[path]}
    key = path.rpartition(".")[2]
    known = BY_PATH.get(path) or BY_KEY.get(key)
    return known or {
        "type": "boolean" if isinstance(value, bool) else "integer" if isinstance(value, int) else "string"
    }


def _options(process: str) -> Json:
    """Options of a process by their names; those that other values set are left out."""
    taken = BY_VALUES - {PODS_DEMAND} if process == "gangshare extender" else BY_VALUES
    every = {option.opts[0].removeprefix("--"): _option(option) for option in options.of(options.PROCESSES[process])}
    fields = {name: option for name, option in every.items() if name not in taken}
    return {"type": "object", "properties": dict(sorted(fields.items())), "additionalProperties": False}


def _option(option: TyperOption) -> Json:
    if option.is_flag:
        return {"type": "boolean"}
    return {"type": ["string", "number", "array"]}


def table() -> str:
    """The values as a table."""
    told = meanings()
    rows = [f"| `{path}` | {_shown(value)} | {told[path]} |" for path, value in leaves(values())]
    return "\n".join(["| value | default | meaning |", "|---|---|---|", *rows, ""])


def _shown(value: Any) -> str:
    return (
        ""
        if value in ("", [], {})
        else f"`{json.dumps(value)}`"
        if isinstance(value, dict | list)
        else f"`{_word(value)}`"
    )


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def readme() -> str:
    """The README with the table as it should be."""
    before, _, rest = README.read_text().partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    SCHEMA.write_text(schema())
    README.write_text(readme())
