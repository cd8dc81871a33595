# SPDX-License-Identifier: GPL-2.0-only
"""The kinds of scenario; a new one is a class here and a file in ``bench/``."""

from nodrop.guest.scenarios.base import Metrics, Scenario
from nodrop.guest.scenarios.guard import Guard
from nodrop.guest.scenarios.multiflow import Multiflow
from nodrop.guest.scenarios.nullvpn import NullVpn
from nodrop.guest.scenarios.tap import Tap
from nodrop.guest.scenarios.udp import Udp
from nodrop.guest.scenarios.vhost import Vhost

KINDS: dict[str, type[Scenario]] = {
    "guard": Guard,
    "multiflow": Multiflow,
    "nullvpn": NullVpn,
    "tap": Tap,
    "udp": Udp,
    "vhost": Vhost,
}
"""By the ``kind`` of the scenario's file."""

__all__ = ["KINDS", "Metrics", "Scenario"]
