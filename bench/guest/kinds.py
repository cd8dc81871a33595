# SPDX-License-Identifier: GPL-2.0-only
"""The kinds of scenario: a new one is a class, a line here, and a scenario."""

from bench.guest.base import Kind
from bench.guest.instructions import Instructions
from bench.guest.macvtap import Beside, Macvtap
from bench.guest.pktgen import Tap, Vhost
from bench.guest.shaping import Shaping
from bench.guest.tcp import Multiflow, NullVpn, Tcp, VhostLatency
from bench.guest.udp import Esp, Guard, Scale
from bench.guest.vpns import VpnTcp, VpnVideo

KINDS: dict[str, type[Kind]] = {
    "beside": Beside,
    "esp": Esp,
    "guard": Guard,
    "instructions": Instructions,
    "macvtap": Macvtap,
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
"""By a scenario's ``kind``."""
