"""Writes the dashboards as Grafana's JSON, of the panels in panels.toml: `make generate WHAT=observability`."""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_WIDTH, _HEIGHT, _PER_ROW = 8, 7, 3
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
Json = dict[str, Any]


def _chart(place: int, panel: Json) -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    if "line" in panel:
        steps.append({"color": "red", "value": panel["line"]})
    lowest = panel.get("lowest", 0)
    return {
        "id": place + 1,
        "type": "timeseries",
        "title": panel["title"],
        "description": panel.get("description", ""),
        "datasource": _SOURCE,
        "gridPos": {"x": _WIDTH * (place % _PER_ROW), "y": _HEIGHT * (place // _PER_ROW), "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {
            "defaults": {
                "unit": panel.get("unit", "short"),
                **({} if lowest == "none" else {"min": lowest}),
                "custom": {"thresholdsStyle": {"mode": "line" if "line" in panel else "off"}},
                "thresholds": {"mode": "absolute", "steps": steps},
            },
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": expr, "legendFormat": legend}
            for number, (expr, legend) in enumerate(panel["queries"])
        ],
    }


def _dashboard(uid: str, title: str, panels: Sequence[Json]) -> Json:
    job: Json = {
        "name": "job",
        "label": "job",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": "label_values(turnscore_ready, job)", "refId": "job"},
        "includeAll": True,
        "multi": True,
        "current": {"text": ["All"], "value": ["$__all"]},
        "refresh": 2,
    }
    return {
        "uid": uid,
        "title": title,
        "tags": ["turnscore"],
        "schemaVersion": 36,  # as Grafana's SDK for 10.1 has it; later ones read it
        "editable": True,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}, job]},
        "panels": [_chart(place, panel) for place, panel in enumerate(panels)],
    }


_TITLES = {
    "service": "service",
    "values": "models and values",
    "cache": "cache",
    "conversations": "conversations",
    "gpu": "batches and GPU",
}
_PANELS: dict[str, list[Json]] = tomllib.loads(Path(__file__).with_name("panels.toml").read_text(encoding="utf-8"))
DASHBOARDS: dict[str, Json] = {
    name: _dashboard(f"turnscore-{name}", f"turnscore: {title}", _PANELS[name]) for name, title in _TITLES.items()
}
FILES = {f"{name}.json": json.dumps(dashboard, indent=1) + "\n" for name, dashboard in DASHBOARDS.items()}

if __name__ == "__main__":
    for name, content in FILES.items():
        (Path(__file__).parent / "dashboards" / name).write_text(content, encoding="utf-8")
