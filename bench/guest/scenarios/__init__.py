# SPDX-License-Identifier: GPL-2.0-only
"""The kinds of scenario; a new kind is a class here and a file in ``bench/scenarios``."""

from bench.guest.scenarios.base import Metrics, Scenario
from bench.guest.scenarios.esp import Esp
from bench.guest.scenarios.guard import Guard
from bench.guest.scenarios.multiflow import Multiflow
from bench.guest.scenarios.nullvpn import NullVpn
from bench.guest.scenarios.scale import Scale
from bench.guest.scenarios.shaping import Shaping
from bench.guest.scenarios.tap import Tap
from bench.guest.scenarios.tcp import Tcp
from bench.guest.scenarios.vhost import Vhost
from bench.guest.scenarios.vhostlatency import VhostLatency
from bench.guest.scenarios.vpntcp import VpnTcp
from bench.guest.scenarios.vpnvideo import VpnVideo

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
    "vhostlatency": VhostLatency,
    "vpntcp": VpnTcp,
    "vpnvideo": VpnVideo,
}
"""By the value of ``kind`` in a scenario's file."""

__all__ = ["KINDS", "Metrics", "Scenario"]
