"""The files that are made: the dashboards, and the alerts as an object of the Prometheus Operator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from protos.contract import names
from tests.monitoring.boards import ALL
from tests.monitoring.grafana import render

COMPONENTS = Path(__file__).parents[2] / "manifests/components"
DASHBOARDS = COMPONENTS / "dashboards"
RULES = COMPONENTS / "monitoring/rules.yaml"
RULE = COMPONENTS / "monitoring/prometheus-rule.yaml"
_HEAD = "# The alerts of rules.yaml, for the Prometheus Operator. Made by: python -m tests.monitoring\n"


def rules() -> dict[str, Any]:
    """What the rules file says."""
    found: dict[str, Any] = yaml.safe_load(RULES.read_text())
    return found


def made() -> Iterator[tuple[Path, str]]:
    """Each file that is made, and its text."""
    for board in ALL:
        yield DASHBOARDS / f"{board.file}.json", json.dumps(render(board), indent=1) + "\n"
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "gangshare",
            "namespace": names.NAMESPACE,
            "labels": {"app.kubernetes.io/part-of": "gangshare"},
        },
        "spec": rules(),
    }
    yield RULE, _HEAD + yaml.safe_dump(rule, sort_keys=False, width=120)
