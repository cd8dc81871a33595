# SPDX-License-Identifier: GPL-2.0-only
"""OpenConnect at the near end, its server ocserv at the far one, by DTLS."""

from __future__ import annotations

import base64
import hashlib

from nodrop.guest.command import tool
from nodrop.guest.slow import patience
from nodrop.guest.vpns.base import Vpn

USER, PASSWORD = "lab", "of no use elsewhere"
SETTINGS = """\
auth = "plain[passwd={folder}/passwords]"
listen-host = {far.outer}
tcp-port = 443
udp-port = 443
run-as-user = root
run-as-group = root
socket-file = {folder}/socket
server-cert = {folder}/crt
server-key = {folder}/key
isolate-workers = false
use-occtl = false
dpd = {dpd:.0f}
auth-timeout = {dpd:.0f}
cookie-timeout = {dpd:.0f}
device = {prefix}
ipv4-network = {far.inner}/24
"""
SCRIPT = """\
#!/bin/sh
test "$reason" != connect || ip link set dev "$TUNDEV" mtu "$INTERNAL_IP4_MTU"
"""


class OpenConnect(Vpn):
    """The client holds the near device; at the far one it is a worker process of ocserv's."""

    name = "openconnect"
    programs = ("openconnect", "ocserv", "openssl")
    trouble = ("Dead Peer Detection detected dead peer", "Reconnect failed")

    def start(self) -> None:
        """Start the server and the client; both devices come with the session."""
        near, far = self.ends
        pin = self._write()
        self.far = self.run(far, ["ocserv", "-f", "-d", "1", "-c", str(self.folder / "conf")])
        self.until(lambda: "listening (UDP)" in self.far.said())
        words = ["openconnect", "--non-inter", "--passwd-on-stdin", f"--user={USER}"]
        words += [f"--servercert={pin}", f"--interface={near.device}"]
        words += [f"--script={self.folder / 'script'}"]
        self.near = self.run(near, [*words, f"https://{far.outer}"], text=f"{PASSWORD}\n")
        for end in (near, far):
            self.configure(end)

    def _write(self) -> str:
        """Write the server's settings and the client's script; returns the server key's hash."""
        far = self.ends[1]
        key, certificate = str(self.folder / "key"), str(self.folder / "crt")
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "30"]
        words += ["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", f"/CN={far.outer}"]
        tool([*words, "-keyout", key, "-out", certificate], timeout=patience(30))
        hashed = tool(["openssl", "passwd", "-5", PASSWORD]).strip()
        (self.folder / "passwords").write_text(f"{USER}:*:{hashed}\n")
        settings = SETTINGS.format(
            folder=self.folder, far=far, dpd=patience(60), prefix=far.device.removesuffix("0")
        )
        (self.folder / "conf").write_text(settings)
        script = self.folder / "script"
        script.write_text(SCRIPT)
        script.chmod(0o755)
        public = tool(["openssl", "x509", "-in", certificate, "-noout", "-pubkey"])
        der = base64.b64decode("".join(public.strip().splitlines()[1:-1]))
        return "pin-sha256:" + base64.b64encode(hashlib.sha256(der).digest()).decode()
