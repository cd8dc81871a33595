# SPDX-License-Identifier: GPL-2.0-only
"""OpenVPN, peer to peer, with TLS over UDP."""

from __future__ import annotations

from guestlib.process import tool
from guestlib.timing import time_limit
from guestlib.vpns.tunnel import End, Process, Vpn

UP = "Initialization Sequence Completed"


class OpenVpn(Vpn):
    """The near end is the TLS server; each end knows the fingerprint of its peer's certificate."""

    name = "openvpn"
    programs = ("openvpn", "openssl")
    trouble = ("Restart pause", "Inactivity timeout", "process restarting", "TLS Error")

    def start(self) -> None:
        """Start both processes, which configure their devices."""
        near, far = self.ends
        near_print, far_print = self._make_key(near), self._make_key(far)
        self.far = self._start(far, near, "client", near_print)
        self.near = self._start(near, far, "server", far_print)
        self.until(lambda: all(UP in process.log_text() for process in self.processes))

    def _make_key(self, end: End) -> str:
        """Create a self-signed certificate; return its fingerprint."""
        key, certificate = (str(self.folder / f"{end.device}.{kind}") for kind in ("key", "crt"))
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "30"]
        words += ["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", f"/CN={end.device}"]
        tool([*words, "-keyout", key, "-out", certificate], timeout=time_limit(30))
        words = ["openssl", "x509", "-in", certificate, "-noout", "-fingerprint", "-sha256"]
        return tool(words).strip().partition("=")[2]

    def _start(self, end: End, other: End, role: str, fingerprint: str) -> Process:
        words = ["openvpn", f"--tls-{role}", "--dev", end.device, "--dev-type", "tun"]
        words += ["--local", end.outer, "--remote", other.outer]
        words += ["--ifconfig", end.inner, other.inner]
        words += ["--peer-fingerprint", fingerprint, "--dh", "none"]
        words += ["--key", str(self.folder / f"{end.device}.key")]
        words += ["--cert", str(self.folder / f"{end.device}.crt")]
        # Data channel offload would use no TUN device.
        words += ["--disable-dco", "--ping", "1", "--ping-restart", f"{time_limit(20):.0f}"]
        return self.run(end, [*words, "--verb", "3"])
