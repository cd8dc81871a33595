# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop export`` of recorded machines, and its alerts, dashboard and service."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hosts import ALL, host, raw, recorded
from prometheus_client.parser import text_string_to_metric_families
from schema import answer
from stubs import write

from lab.sources import REPOSITORY
from nodrop import cli, prometheus
from nodrop.cli import parser
from nodrop.host.model import Host
from nodrop.host.read import build
from nodrop.prometheus import MetricFamily, collect

ODD = [
    'a"b',
    "a\\b",
    "it's",
    "a{b}",
    "gr\u00fcn",
    "x\x01y",
    "\udcff\udcfe",
    "\udcff\udcfd",
    "a,b=1",
]

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(page: str) -> Samples:
    """Return the samples by name and labels, as parsed by Prometheus' Python client."""
    samples: Samples = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in samples, f"twice: {key}"
            samples[key] = sample.value
    return samples


def exported(host: Host) -> Samples:
    return parsed(prometheus.page(collect(host, host.devices, 0.25)).decode())


PROMTOOL = shutil.which("promtool")


def promtool(*words: str | Path, page: str = "") -> None:
    if PROMTOOL is None:
        pytest.skip("no promtool (Debian's package prometheus)")
    done = subprocess.run(
        [PROMTOOL, *words], input=page, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not page or done.stdout + done.stderr == ""


def test_text_equals_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 7.0)
    for name in ALL:
        recorded(monkeypatch, raw(name))
        expected = {
            (family["name"], tuple(sorted(sample["labels"].items()))): sample["value"]
            for family in answer(capsys, "export")["families"]
            for sample in family["samples"]
        }
        assert cli.main(["export"]) == 0
        page = capsys.readouterr().out
        assert parsed(page) == expected
        if PROMTOOL:
            promtool("check", "metrics", page=page)


def test_unknown_values_have_no_sample() -> None:
    stalled = [
        value for (name, _), value in exported(host("nodrop")).items() if "stalled_seconds" in name
    ]
    assert stalled == [4.12]
    names = {name for name, _ in exported(host("stock"))}
    assert not {name for name in names if name.startswith("nodrop_queue_")}
    assert not names & {"nodrop_guard_seconds", "nodrop_default_backpressure"}
    tunnel = {name for name, labels in exported(host("spaces")) if ("kind", "vxlan") in labels}
    assert "nodrop_device_transmit_packets_total" in tunnel
    assert not tunnel & {"nodrop_device_backpressure", "nodrop_device_queues"}


def test_labels_have_no_pid() -> None:
    machine = raw("spaces")
    spaces = [
        replace(
            space, name={"blue": "4711", "red": "/proc/4711/ns/net"}.get(space.name, space.name)
        )
        for space in machine.namespaces
    ]
    samples = build(replace(machine, namespaces=spaces))
    shown = exported(samples)
    inodes = {space.inode for space in spaces if "4711" in space.name}
    names = {dict(labels)["netns"] for _, labels in shown if "netns" in dict(labels)}
    assert len(inodes) == 2
    assert names == {"", *(f"net:[{inode}]" for inode in inodes)}
    assert not any("4711" in value for _, labels in shown for _, value in labels)


def test_unusual_labels() -> None:
    family = MetricFamily("nodrop_x_total", "One.\nA \\ too.", ("device",))
    family.samples.update(
        {(prometheus.readable(name),): 1 for name in [*ODD, "a\nb", "\\n", 'a\\"b']}
    )
    page = prometheus.page([family]).decode()
    assert page.count("\n") == 2 + len(family.samples)
    shown = {dict(labels)["device"] for _, labels in parsed(page)}
    assert shown == {values[0] for values in family.samples}
    assert len(shown) == len(ODD) + 3
    assert prometheus.readable("n\udcff") != prometheus.readable(r"n\xff")
    assert prometheus.readable("tun0") == "tun0"


@pytest.mark.parametrize("name", ["none/nodrop.prom", "below", "fifo", "link", "open"])
def test_out_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path may be a link of another user to an open file."""
    recorded(monkeypatch, raw("nodrop"))
    write(tmp_path / "below/nodrop.prom", "old")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("below/nodrop.prom")
    (tmp_path / "open").symlink_to("/proc/self/fd/1")
    there = sorted(tmp_path.rglob("*"))
    assert cli.main(["export", "--out", str(tmp_path / name)]) == 1
    assert sorted(tmp_path.rglob("*")) == there
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "below/nodrop.prom").read_text() == "old"


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


def unknown(query: str) -> list[str]:
    """Return the metrics and labels that a query uses and that are not exported."""
    known = {family.name: family for family in collect(host("nodrop"), (), 0.0)}
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
    path = write(tmp_path / "all.yml", "\n".join(lines))
    promtool("check", "rules", "--lint-fatal", path)


def test_service_runs_an_existing_command() -> None:
    line = re.search(r"^ExecStart=nodrop (.*)$", SERVICE.read_text(), re.MULTILINE)
    assert line
    arguments = parser().parse_args(line[1].split())
    assert arguments.all_namespaces
    folder = str(arguments.out.parent)
    assert SERVICE.read_text().count(folder) == 3
    assert arguments.out.suffix == ".prom"
