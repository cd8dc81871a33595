# SPDX-License-Identifier: GPL-2.0-only
"""Machines recorded with ``python -m nodrop.doctor``, without unused keys: tests/unit/hosts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodrop.host.build import build
from nodrop.host.model import Device, Host
from nodrop.host.raw import Raw

HOSTS = Path(__file__).parent / "unit/hosts"
ALL = ("stock", "upstream", "nodrop", "spaces")


def raw(name: str) -> Raw:
    """Return a record; "upstream" is stock's with upstream's flag set on the device."""
    recorded = "stock" if name == "upstream" else name
    found = Raw.from_json(json.loads((HOSTS / f"{recorded}.json").read_text()))
    if name == "upstream":
        found.namespaces[0].sysfs["ndtest0"]["tun_flags"] = "0x1081"
    return found


def recorded(monkeypatch: pytest.MonkeyPatch, found: Raw) -> None:
    """Make commands that read the host once see a recorded machine."""
    monkeypatch.setattr("nodrop.commands.where.read", lambda *_args, **_words: found)


def host(name: str) -> Host:
    """Return a machine's model."""
    return build(raw(name))


def device(found: Host, label: str) -> Device:
    """Return a device by its name or by NAMESPACE/NAME."""
    return next(one for one in found.devices if one.label == label)
