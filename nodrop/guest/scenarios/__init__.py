# SPDX-License-Identifier: GPL-2.0-only
"""The kinds of scenario; a new one is a class here and a file in ``bench/``."""

from nodrop.guest.scenarios.base import Metrics, Scenario
from nodrop.guest.scenarios.esp import Esp
from nodrop.guest.scenarios.guard import Guard
from nodrop.guest.scenarios.multiflow import Multiflow
from nodrop.guest.scenarios.nullvpn import NullVpn
from nodrop.guest.scenarios.scale import Scale
from nodrop.guest.scenarios.shaping import Shaping
from nodrop.guest.scenarios.tap import Tap
from nodrop.guest.scenarios.tcp import Tcp
from nodrop.guest.scenarios.vhost import Vhost
from nodrop.guest.scenarios.vpntcp import VpnTcp
from nodrop.guest.scenarios.vpnvideo import VpnVideo

KINDS: dict[str, type[Scenario]] = {
    "esp": Esp,
    "guard": Guard,
    "multiflow": Multiflow,
    "nullvpn": NullVpn,
    "scale": Scale,
    "shaping": Shaping,
    "tap": Tap,
    "tcp": Tcp,
    "vhost": Vhost,
    "vpntcp": VpnTcp,
    "vpnvideo": VpnVideo,
}
"""By the ``kind`` of the scenario's file."""

__all__ = ["KINDS", "Metrics", "Scenario"]
