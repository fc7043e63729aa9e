"""Dashboards and alerts are made of their descriptions, name only metrics that exist, and lead to runbooks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deviceplugin.metrics import Metrics
from deviceplugin.usage import metrics as measured
from extender import metrics
from protos.contract import names
from tests.monitoring.boards import ALL
from tests.monitoring.files import DASHBOARDS, RULES, made, rules
from tests.monitoring.grafana import COLUMNS, Dashboard, Json
from tests.unit.docs.pages import anchors, page
from tests.unit.docs.test_pages import collected, sample
from tests.unit.manifests.conftest import Objects
from tests.unit.manifests.test_gate import with_components

Kustomize = Callable[[str], Objects]
FILES = dict(made())
RUNBOOKS = "docs/runbooks.md"


def served() -> set[str]:
    """The names of all series."""
    specs = (*metrics.TABLE, *measured.TABLE)
    families: dict[str, str] = {sample(spec.name, spec.kind): spec.kind for spec in specs}
    families |= {name: kind for name, (kind, _) in collected(Metrics().registry).items()}
    buckets = {f"{name}_bucket" for name, kind in families.items() if kind == "histogram"}
    return set(families) | buckets


def alerts() -> Iterator[Json]:
    for group in rules()["groups"]:
        yield from group["rules"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_made_of_its_description(path: Path) -> None:
    assert path.read_text() == FILES[path], "run: python -m tests.monitoring"


def test_no_other_dashboard_lies_there() -> None:
    assert set(DASHBOARDS.glob("*.json")) == {path for path in FILES if path.suffix == ".json"}


def test_dashboards_and_alerts_name_metrics_that_are_served() -> None:
    exprs = [query.expr for board in ALL for panel in board.panels for query in panel.queries]
    exprs += [variable.metric for board in ALL for variable in board.variables]
    exprs += [alert["expr"] for alert in alerts()]
    assert {name for expr in exprs for name in re.findall(r"\bgangshare_\w+", expr)} - served() == set()


@pytest.mark.parametrize("board", ALL, ids=lambda board: board.file)
def test_a_dashboard_is_told_by_titles_units_and_variables(board: Dashboard) -> None:
    shown = json.loads((DASHBOARDS / f"{board.file}.json").read_text())
    variables = {variable["name"] for variable in shown["templating"]["list"]}
    assert "datasource" in variables
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(shown["panels"])))
    assert used == variables
    for panel in shown["panels"]:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == "${datasource}"
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
    tables = [panel for panel in board.panels if panel.kind == "table"]
    assert all(query.legend for panel in tables for query in panel.queries), "a column has a heading"


def test_each_alert_leads_to_a_section_of_the_runbooks_and_each_section_is_of_one() -> None:
    led = {alert["alert"]: alert["annotations"]["runbook_url"].rpartition("/")[2] for alert in alerts()}
    assert led == {name: f"runbooks.md#{name.lower()}" for name in led}
    sections = {anchor for anchor in anchors(page(RUNBOOKS)) if anchor.startswith("gangshare")}
    assert sections == {name.lower() for name in led}
    assert {alert["labels"]["severity"] for alert in alerts()} <= {"critical", "warning", "info"}


def test_the_runbooks_address_may_be_replaced_as_the_page_says() -> None:
    assert "s,https://gangshare.example.com," in page("docs/dashboards.md").read_text()
    assert RULES.read_text().count("https://gangshare.example.com/docs/runbooks.md#") == len(list(alerts()))


def test_each_dashboard_is_a_config_map_that_grafanas_sidecar_finds(kustomize: Kustomize, tmp_path: Path) -> None:
    maps = with_components(kustomize, tmp_path, "dashboards").of("ConfigMap")
    found = {name: each for name, each in maps.items() if each["metadata"].get("labels", {}).get("grafana_dashboard")}
    assert set(found) == {f"gangshare-dashboard-{board.file}" for board in ALL}
    for board in ALL:
        each = found[f"gangshare-dashboard-{board.file}"]
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["namespace"] == names.NAMESPACE
        assert each["data"] == {f"{board.file}.json": FILES[DASHBOARDS / f"{board.file}.json"]}


def test_what_is_scraped_are_ports_that_the_pods_have(kustomize: Kustomize, tmp_path: Path) -> None:
    objects = with_components(kustomize, tmp_path, "usage", "monitoring")
    assert objects.of("PrometheusRule")["gangshare"]["spec"] == rules()
    pods = {
        kind["metadata"]["name"]: kind["spec"]["template"]
        for kind in objects.all
        if kind["kind"] in ("Deployment", "DaemonSet")
    }
    monitors = objects.of("PodMonitor")
    assert set(monitors) == {"gangshare-scheduler", "gangshare-plugin", names.USAGE}
    for name, monitor in monitors.items():
        spec, pod = monitor["spec"], pods[name]
        assert spec["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
        ports = {port["name"] for each in containers for port in each.get("ports", [])}
        assert {endpoint["port"] for endpoint in spec["podMetricsEndpoints"]} <= ports
    (usage,) = monitors[names.USAGE]["spec"]["podMetricsEndpoints"]
    assert usage["honorLabels"] is True
