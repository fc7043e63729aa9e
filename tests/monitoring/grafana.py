"""Dashboards in Grafana's classic JSON, made of panels and variables.

Source: Grafana's documentation, "Dashboard JSON model" (classic); schemaVersion 41 is that of Grafana 11.6 and 12.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

SCHEMA_VERSION = 41
COLUMNS = 24
"""The width of a dashboard."""
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_HEIGHTS = {"stat": 4}
_HEIGHT = 8

Kind = Literal["stat", "timeseries", "bargauge", "heatmap", "table"]
Json = dict[str, Any]


class Query(NamedTuple):
    """A query in PromQL. In a table it makes a column, `legend` is its heading and `unit` its unit."""

    expr: str
    legend: str = ""
    unit: str = ""


class Panel(NamedTuple):
    """One panel; `unit` is Grafana's name of the unit."""

    kind: Kind
    title: str
    queries: tuple[Query, ...]
    help: str
    unit: str = "short"
    width: int = 8
    most: float | None = None
    """The end of the scale."""


class Variable(NamedTuple):
    """What the reader picks: values of a label of a metric, or with `text` a text of his own."""

    name: str
    title: str
    metric: str = ""
    text: str = ""


class Dashboard(NamedTuple):
    """One dashboard; `file` names its file and is part of its uid."""

    file: str
    title: str
    help: str
    variables: tuple[Variable, ...]
    panels: tuple[Panel, ...]
    needs: tuple[str, ...] = ()
    """The optional components without which it shows nothing."""


def panel(kind: Kind, title: str, queries: str | Sequence[Query], help: str, **more: Any) -> Panel:  # noqa: A002
    """A panel; one query may be its text alone."""
    of = (Query(queries),) if isinstance(queries, str) else tuple(queries)
    return Panel(kind, title, of, help, **more)


def render(of: Dashboard) -> Json:
    """The JSON of a dashboard."""
    return {
        "uid": f"gangshare-{of.file}",
        "title": of.title,
        "description": of.help,
        "tags": ["gangshare"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "annotations": {"list": []},
        "links": [
            {
                "type": "dashboards",
                "title": "Gangshare",
                "tags": ["gangshare"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": [_datasource(), *(_variable(each) for each in of.variables)]},
        "panels": list(_placed(of.panels)),
    }


def _datasource() -> Json:
    return {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "current": {}}


def _variable(of: Variable) -> Json:
    named = {"name": of.name, "label": of.title}
    if not of.metric:
        return {"type": "textbox", **named, "query": of.text, "current": {"text": of.text, "value": of.text}}
    query = f"label_values({of.metric}, {of.name})"
    return {
        "type": "query",
        **named,
        "datasource": _DATASOURCE,
        "definition": query,
        "query": {"qryType": 1, "query": query, "refId": "Variable"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _placed(panels: Iterable[Panel]) -> Iterable[Json]:
    """The panels from left to right, line by line."""
    x = y = height = 0
    for number, each in enumerate(panels, start=1):
        if x + each.width > COLUMNS:
            x, y, height = 0, y + height, 0
        tall = _HEIGHTS.get(each.kind, _HEIGHT)
        yield {"id": number, "gridPos": {"x": x, "y": y, "w": each.width, "h": tall}, **_panel(each)}
        x, height = x + each.width, max(height, tall)


def _panel(of: Panel) -> Json:
    defaults: Json = {"unit": of.unit}
    if of.kind == "bargauge":
        defaults["min"] = 0
    if of.most is not None:
        defaults["max"] = of.most
    return {
        "type": of.kind,
        "title": of.title,
        "description": of.help,
        "datasource": _DATASOURCE,
        "targets": [_target(of.kind, query, chr(ord("A") + i)) for i, query in enumerate(of.queries)],
        "fieldConfig": {"defaults": defaults, "overrides": _columns(of) if of.kind == "table" else []},
        "options": _OPTIONS[of.kind],
        "transformations": _joined(of) if of.kind == "table" else [],
    }


def _target(kind: Kind, query: Query, ref: str) -> Json:
    over_time = kind in ("timeseries", "heatmap")
    formats = {"table": "table", "heatmap": "heatmap"}
    return {
        "refId": ref,
        "datasource": _DATASOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or ("{{le}}" if kind == "heatmap" else "__auto"),
        "instant": not over_time,
        "range": over_time,
        "format": formats.get(kind, "time_series"),
    }


def _values(of: Panel) -> Iterable[tuple[str, Query]]:
    """The names that Grafana gives to the values of a table's queries."""
    if len(of.queries) == 1:
        return [("Value", of.queries[0])]
    return [(f"Value #{chr(ord('A') + i)}", query) for i, query in enumerate(of.queries)]


def _joined(of: Panel) -> list[Json]:
    """One row for each set of labels, without the time."""
    heads = {name: query.legend for name, query in _values(of)}
    return [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": heads}},
    ]


def _columns(of: Panel) -> list[Json]:
    return [
        {
            "matcher": {"id": "byName", "options": query.legend},
            "properties": [{"id": "unit", "value": query.unit}],
        }
        for query in of.queries
        if query.unit
    ]


_LAST = {"calcs": ["lastNotNull"], "fields": "", "values": False}
_OPTIONS: dict[Kind, Json] = {
    "stat": {"reduceOptions": _LAST, "colorMode": "value", "graphMode": "none", "textMode": "auto"},
    "timeseries": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
    "bargauge": {"reduceOptions": _LAST, "orientation": "horizontal", "displayMode": "basic"},
    "heatmap": {"calculate": False, "yAxis": {"unit": "s"}, "cellGap": 1},
    "table": {"showHeader": True, "cellHeight": "sm"},
}
