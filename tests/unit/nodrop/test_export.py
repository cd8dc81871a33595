# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop export`` of recorded machines and unusual names."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hosts import ALL, host, raw, recorded
from prometheus_client.parser import text_string_to_metric_families
from schema import answer
from stubs import write

from nodrop import cli, prometheus
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


def of(samples: Samples, name: str, **labels: str) -> float:
    """Return the only sample of a name whose labels include these."""
    (value,) = [
        value
        for (this, pairs), value in samples.items()
        if this == name and labels.items() <= dict(pairs).items()
    ]
    return value


def exported(host: Host) -> Samples:
    return parsed(prometheus.page(collect(host, host.devices, 0.25)).decode())


def test_text_equals_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 7.0)
    promtool = shutil.which("promtool")
    for name in ALL:
        recorded(monkeypatch, raw(name))
        expected = {
            (family["name"], tuple(sorted(sample["labels"].items()))): sample["value"]
            for family in answer(capsys, "export")["families"]
            for sample in family["samples"]
        }
        assert cli.main(["export", "--prometheus"]) == 0
        page = capsys.readouterr().out
        assert parsed(page) == expected
        if promtool:
            done = subprocess.run(
                [promtool, "check", "metrics"], input=page, text=True, capture_output=True
            )
            assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_stalled_reader() -> None:
    samples = exported(host("nodrop"))
    assert of(samples, "nodrop_queue_stalled_seconds", device="ndtest0") == 4.12


def test_unknown_values_have_no_sample() -> None:
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
