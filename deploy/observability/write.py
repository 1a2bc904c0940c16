"""`make generate WHAT=observability`: writes rules/turnscore.yml and dashboards/*.json from rules.py, dashboards.py."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

from dashboards import DASHBOARDS  # noqa: E402
from rules import GROUPS, RUNBOOK, Rule  # noqa: E402


def make_rules() -> str:
    """The rules as Prometheus reads them."""
    lines = ["# Written by `make generate WHAT=observability` of rules.py: change that.", "groups:"]
    for name, (interval, rules) in GROUPS.items():
        lines += [f"  - name: {name}", f"    interval: {interval}", "    rules:"]
        for rule in rules:
            lines += _describe(rule)
    return "\n".join(lines) + "\n"


def _describe(rule: Rule) -> Iterator[str]:
    yield f"      - record: {rule.record}" if rule.record else f"      - alert: {rule.alert}"
    yield from ("        expr: |-", f"          {rule.expr}")
    if rule.wait:
        yield f"        for: {rule.wait}"
    if rule.labels:
        yield "        labels:"
        yield from (f"          {name}: {json.dumps(value)}" for name, value in rule.labels.items())
    if rule.alert:
        yield "        annotations:"
        yield f"          summary: {json.dumps(rule.summary)}"
        yield f"          runbook: {json.dumps(f'{RUNBOOK}#{rule.alert.lower()}')}"


def make_files() -> dict[str, str]:
    """Every written file's content, by its path in this folder."""
    found = {"rules/turnscore.yml": make_rules()}
    for name, dashboard in DASHBOARDS.items():
        found[f"dashboards/{name}.json"] = json.dumps(dashboard, indent=1) + "\n"
    return found


if __name__ == "__main__":
    for path, content in make_files().items():
        (FOLDER / path).parent.mkdir(exist_ok=True)
        (FOLDER / path).write_text(content, encoding="utf-8")
