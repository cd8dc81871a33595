# SPDX-License-Identifier: GPL-2.0-only
"""Files around ``nodrop export``: documentation, alerts, dashboard and service."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hosts import host

from lab.sources import REPOSITORY
from nodrop.cli import parser
from nodrop.prometheus import MetricFamily, collect

CONTRIB = REPOSITORY / "packaging"
RULES = CONTRIB / "prometheus/nodrop.rules.yml"
SERVICE = CONTRIB / "systemd/nodrop-export.service"
DASHBOARD = CONTRIB / "grafana/nodrop.json"
FOREIGN = {"job", "instance"}
"""Labels that Prometheus itself adds."""
_METRIC = re.compile(r"\bnodrop_[a-z_]+")
_SELECTOR = re.compile(r"\b(nodrop_[a-z_]+)\{([^}]*)\}")
_MATCH = re.compile(r'([a-z_]+)(?:=~|!~|!=|=)"')
_GROUPING = re.compile(r"\b(?:by|on|group_left) \(([^)]*)\)")


def families() -> dict[str, MetricFamily]:
    return {family.name: family for family in collect(host("nodrop"), (), 0.0)}


def unknown(query: str) -> list[str]:
    """Return the metrics and labels that a query uses and that are not exported."""
    known = families()
    wrong = [name for name in _METRIC.findall(query) if name not in known]
    for name, selector in _SELECTOR.findall(query):
        wrong += [
            f"{name}: {label}"
            for label in _MATCH.findall(selector)
            if name in known and label not in {*known[name].labels, *FOREIGN}
        ]
    labels = FOREIGN.union(*(family.labels for family in known.values()))
    for names in _GROUPING.findall(query):
        wrong += [label for label in names.split(", ") if label not in labels]
    return wrong


def queries(node: Any) -> list[str]:
    """Return all queries of a dashboard, including its variables'."""
    if isinstance(node, list):
        return [text for one in node for text in queries(one)]
    if not isinstance(node, dict):
        return []
    own = [node[key] for key in ("expr", "query") if isinstance(node.get(key), str)]
    return own + [text for one in node.values() for text in queries(one)]


def promtool(*words: str | Path) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool (Debian's package prometheus)")
    done = subprocess.run(
        [program, *words], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules() -> None:
    expressions = re.findall(
        r"^ +expr: (.*?)(?=^ +(?:for|labels):)", RULES.read_text(), re.MULTILINE | re.DOTALL
    )
    assert len(expressions) == 4
    assert [wrong for text in expressions for wrong in unknown(text)] == []
    names = re.findall(r"alert: (\w+)", RULES.read_text())
    page = (REPOSITORY / "docs/monitoring.md").read_text()
    assert re.findall(r"monitoring\.md#(.*)", RULES.read_text()) == [one.lower() for one in names]
    assert re.findall(r"^### (.*)", page, re.MULTILINE) == names
    promtool("check", "rules", RULES)
    promtool("test", "rules", Path(__file__).parents[1] / "prometheus/nodrop.test.yml")


def test_dashboard_queries_exported_metrics(tmp_path: Path) -> None:
    asked = [text for text in queries(json.loads(DASHBOARD.read_text())) if "nodrop_" in text]
    assert len(asked) > 15
    assert [wrong for text in asked for wrong in unknown(text)] == []
    lines = ["groups:", "- name: all", "  rules:"]
    for number, text in enumerate(one for one in asked if not one.startswith("label_values")):
        plain = text.replace("$__rate_interval", "5m").replace("$__range", "3h")
        lines += [f"  - record: x:y{number}", f"    expr: {json.dumps(plain)}"]
    stock = host("stock")
    there = {one.name for one in collect(stock, stock.devices, 0.0) if one.samples}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        lacks = not there & set(_METRIC.findall(" ".join(queries(panel))))
        assert lacks is ("nodrop's driver" in str(panel["fieldConfig"])), panel["title"]
    path = tmp_path / "all.yml"
    path.write_text("\n".join(lines))
    promtool("check", "rules", "--lint-fatal", path)


def test_service_runs_an_existing_command() -> None:
    line = re.search(r"^ExecStart=nodrop (.*)$", SERVICE.read_text(), re.MULTILINE)
    assert line
    arguments = parser().parse_args(line[1].split())
    assert (arguments.all_namespaces, arguments.prometheus) == (True, True)
    folder = str(arguments.out.parent)
    assert SERVICE.read_text().count(folder) == 3
    assert arguments.out.suffix == ".prom"
