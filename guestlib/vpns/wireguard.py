# SPDX-License-Identifier: GPL-2.0-only
"""wireguard-go, WireGuard in user space."""

from __future__ import annotations

from guestlib.drivers import IFF_BACKPRESSURE
from guestlib.process import in_netns, ip_batch, tool
from guestlib.tundev import TunDevice, opened_flags
from guestlib.vpns.tunnel import End, Process, Vpn

LISTENS = "UAPI listener started"
"""wg(8) removes a socket on which no process listens yet."""

PORT = 51820
ENVIRONMENT = {"WG_PROCESS_FOREGROUND": "1", "LOG_LEVEL": "verbose"}


class WireguardGo(Vpn):
    """A process at each end, configured by wg(8) through a socket named after the device."""

    name = "wireguard-go"
    programs = ("wireguard-go", "wg")

    def start(self) -> None:
        """Start both processes, which create their devices, and set keys and addresses."""
        keys = [tool(["wg", "genkey"]).strip() for _ in self.ends]
        public = [tool(["wg", "pubkey"], text=key).strip() for key in keys]
        near, far = self.ends
        flags = self._flags_asked_for(near) if self.options.backpressure else None
        self.near, self.far = self._start(near, flags), self._start(far, flags)
        self.until(lambda: all(LISTENS in process.log_text() for process in self.processes))
        for end, other, key, peer in zip(
            self.ends, reversed(self.ends), keys, reversed(public), strict=True
        ):
            file = self.folder / f"{end.device}.key"
            file.write_text(key)
            words = ["wg", "set", end.device, "listen-port", str(PORT), "private-key", str(file)]
            words += ["peer", peer, "allowed-ips", "0.0.0.0/0"]
            tool(in_netns(end.netns, [*words, "endpoint", f"{other.outer}:{PORT}"]))
            self.configure(end)

    def _flags_asked_for(self, end: End) -> int:
        """Return the flags with which this version opens a device, from a first trial start."""
        log = self.folder / "flags.log"
        with Process(self._words(end), log, netns=end.netns, env=ENVIRONMENT):
            self.until(lambda: self.exists(end))
            flags = opened_flags(end.device, netns=end.netns)
        self.until(lambda: not self.exists(end))
        return flags

    def _start(self, end: End, flags: int | None) -> Process:
        """Start an end's process; it creates its device (None), or gets one with upstream's flag.

        A Go program makes its own system calls, so a preloaded library cannot add the flag.
        """
        if flags is None:
            return self.run(end, self._words(end), env=ENVIRONMENT)
        with TunDevice(end.device, flags | IFF_BACKPRESSURE, exact=True) as device:
            if end.netns:
                ip_batch([f"link set dev {end.device} netns {end.netns}"])
            env = {**ENVIRONMENT, "WG_TUN_FD": str(device.fd)}
            return self.run(end, self._words(end), env=env, pass_fds=[device.fd])

    @staticmethod
    def _words(end: End) -> list[str]:
        return ["wireguard-go", "-f", end.device]
