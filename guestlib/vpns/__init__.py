# SPDX-License-Identifier: GPL-2.0-only
"""Real VPNs with a TUN device at each end of a tunnel."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from guestlib.vpns.openvpn import OpenVpn
from guestlib.vpns.tunnel import End, Options, Process, Vpn, veth_pair
from guestlib.vpns.wireguard import WireguardGo

__all__ = ["FAR", "KINDS", "NEAR", "End", "Options", "Process", "Vpn", "tunnel"]

KINDS: dict[str, type[Vpn]] = {kind.name: kind for kind in (OpenVpn, WireguardGo)}
"""The VPNs by their names."""

NEAR = End(None, "ndtest0", "192.0.2.1", "198.18.0.1")
FAR = End("ndfar", "ndfar0", "192.0.2.2", "198.18.0.2")
DEFAULT = Options()


@contextmanager
def tunnel(
    name: str, *, near: End = NEAR, far: End = FAR, options: Options = DEFAULT
) -> Iterator[Vpn]:
    """Yield a tunnel through which packets pass; remove all of it at the end.

    Args:
        name: of the VPN, one of KINDS.
        near: the end whose device is tested or measured.
        far: the other end; its device's name must end with a 0, and it needs a namespace.

    Raises:
        GuestError: it cannot be set up.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="nodrop-vpn-"))
        stack.enter_context(veth_pair(near, far))
        yield stack.enter_context(KINDS[name]((near, far), Path(folder), options))
