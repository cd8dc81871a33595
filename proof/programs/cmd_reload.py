#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop reload`` without systemd, on a terminal behind the OpenVPN that it restarts."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from command import REPOSITORY
from devices import NAME
from harness import Skip, check, each, equal, run, soon

from guestlib.drivers import tun_built_in
from guestlib.environment import time_limit
from guestlib.namespaces import inside
from guestlib.process import tool
from guestlib.vpns import FAR, NEAR, OpenVpn, Vpn, tunnel
from nodrop.host import ethtool, modules

MODULES = Path(os.environ["LAB_MODULES"])
PORT = 2222


@contextmanager
def installed() -> Iterator[None]:
    """Install nodrop's modules beside the stock ones, and load the stock tun, for the block."""
    folder = Path("/lib/modules", os.uname().release)
    if tun_built_in() or folder.exists():
        raise Skip("this kernel has modules of its own")
    places = {"kernel": ["stock/tun"], "updates": ["nodrop/tun", "nodrop/nodrop"]}
    for place, names in places.items():
        (folder / place).mkdir(parents=True)
        for name in names:
            shutil.copy(MODULES / f"{name}.ko", folder / place)
    tool(["depmod"])
    tool(["insmod", str(MODULES / "stock/tun.ko")])
    try:
        yield
    finally:
        shutil.rmtree(folder)
        for name in ("tun", "nodrop"):
            if Path("/sys/module", name).exists():
                tool(["rmmod", name])


class RemoteShell:
    """A terminal for a program, carried by a TCP connection through the VPN.

    Args:
        argv: the program.
        hangs_up: whether the terminal hangs up when the VPN is stopped.
    """

    def __init__(self, argv: list[str], hangs_up: bool) -> None:
        self._hangs_up = hangs_up
        with socket.create_server((NEAR.inner, PORT)) as server:
            with inside(FAR.netns):
                self._client = socket.socket()
            self._client.settimeout(time_limit(60))
            self._client.connect((NEAR.inner, PORT))
            self._server, _ = server.accept()
        self._master, slave = os.openpty()
        self.process = subprocess.Popen(
            argv,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )
        os.close(slave)
        self.text = ""
        self._thread = threading.Thread(target=self._relay, daemon=True)
        self._thread.start()

    def _relay(self) -> None:
        """Send the terminal's output to the client, until the program ends or it hangs up."""
        with suppress(OSError):
            while data := os.read(self._master, 4096):
                self._server.sendall(data)
                if self._hangs_up and b"+ sh -c" in data:
                    break
        os.close(self._master)
        self._server.close()

    def types(self, text: str) -> None:
        os.write(self._master, text.encode())

    def sees(self, text: str) -> None:
        """Receive through the VPN until a text appears; "": until the connection ends."""
        while not text or text not in self.text:
            data = self._client.recv(4096)
            if not data:
                check(not text, f"no '{text}' in {self.text}")
                return
            self.text += data.decode(errors="replace")


def commands(vpn: Vpn, pids: Path) -> tuple[str, str]:
    """Return the shell commands that stop both ends, and start them as daemons."""
    start = []
    for end, process in zip(vpn.ends, (vpn.near, vpn.far), strict=True):
        words = Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")[:-1]
        words += ["--daemon", "--writepid", str(pids / end.device)]
        start.append((f"ip netns exec {end.netns} " if end.netns else "") + shlex.join(words))
    return f"kill {vpn.near.pid} {vpn.far.pid}; sleep 1", "; ".join(start)


@each("stays", "hangs up")
def case_terminal(what: object) -> None:
    with installed(), tunnel("openvpn") as vpn:
        assert isinstance(vpn, OpenVpn)
        stop, start = commands(vpn, vpn.folder)
        argv = [sys.executable, "-m", "nodrop", "reload"]
        refused = subprocess.run([*argv, "--yes"], capture_output=True, text=True, check=False)
        equal(refused.returncode, 1, "without commands for what is no service")
        check(f"openvpn({vpn.near.pid})" in refused.stderr, refused.stderr)
        shell = RemoteShell([*argv, "--stop", stop, "--start", start], what == "hangs up")
        try:
            shell.sees("[y/N]")
            equal(modules.driver(Path("/")), "stock", "the driver before")
            shell.types("y\n")
            shell.sees("" if what == "hangs up" else "Loaded now: nodrop's tun")
            soon(lambda: modules.driver(Path("/")) == "nodrop", "nodrop's tun is not loaded", 60)
            soon(vpn.passes, "the VPN does not come back", 30)
            equal(ethtool.private_flags(NAME), {"nodrop": True}, "the new device's flag")
            status = shell.process.wait(time_limit(30))
            # Nothing reads the exit status of a program whose terminal is gone.
            check(status == 0 or what == "hangs up", f"exit status {status}")
        finally:
            for file in (vpn.folder / end.device for end in vpn.ends):
                if file.exists():
                    os.kill(int(file.read_text()), signal.SIGTERM)
                    soon(lambda file=file: not file.exists(), "OpenVPN does not end")


run(tun=None)
