# SPDX-License-Identifier: GPL-2.0-only
"""Real VPNs: two ends joined by a veth pair, with a TUN device and a process at each.

::

    near.netns                                              far.netns
    near.inner --> near.device --> process     process --> far.device --> far.inner
                               near.outer === far.outer
                                      ndveth0   ndveth1
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

from guestlib.drivers import IFF_BACKPRESSURE
from guestlib.environment import GuestError, Unsupported, scaled, time_limit, wait_until
from guestlib.namespaces import namespaces
from guestlib.process import Service, in_netns, ip_batch, tool
from guestlib.tundev import TunDevice, opened_flags

VETH = ("ndveth0", "ndveth1")
UP_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class End:
    """One end of a tunnel.

    Attributes:
        netns: the namespace to create for it; None: the caller's.
        device: its TUN device.
        outer: its address on the veth pair.
        inner: its address in the tunnel.
    """

    netns: str | None
    device: str
    outer: str
    inner: str


@dataclass(frozen=True)
class Options:
    """Options for both ends.

    Attributes:
        offloads: packets may reach the VPN unsegmented, if it supports that.
        backpressure: a library (guestlib/traffic/backpressure.c) that adds upstream's flag when the
            devices are opened; None: without the flag.
        cpus: the CPUs of the near and the far process; None: any.
    """

    offloads: bool = True
    backpressure: Path | None = None
    cpus: tuple[int, int] | None = None


class Process(Service):
    """A VPN's program in the foreground.

    Args:
        argv: the command.
        log: a file for its output.
        netns: its namespace; None: this one.
        cpu: its CPU; None: any.
        env: more environment.
        pass_fds: file descriptors that it inherits.
    """

    def __init__(
        self,
        argv: Sequence[str],
        log: Path,
        *,
        netns: str | None = None,
        cpu: int | None = None,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        # It must not survive its parent: it would keep the driver in use.
        words = ["setpriv", "--pdeathsig", "KILL", "--"]
        if cpu is not None:
            words += ["taskset", "--cpu-list", f"{cpu}"]
        super().__init__(
            in_netns(netns, [*words, *argv]),
            announces=False,
            pass_fds=pass_fds,
            env={**os.environ, **(env or {})},
            log=log,
        )
        self.name = argv[0]


class Vpn(ABC):
    """A tunnel between two ends that a veth pair joins; a context manager.

    Args:
        folder: for keys, settings and logs.

    Raises:
        GuestError: a program is missing or ended, or no packet passed within UP_TIMEOUT_S.
    """

    name: ClassVar[str]
    """The VPN's name, and that of the program that reads the near end's device."""
    trouble: ClassVar[tuple[str, ...]] = ()
    """Messages that report the loss of its peer."""

    asks_itself: ClassVar[bool] = False
    """It makes its own system calls, as Go programs do: no preloaded library can add a flag, and
    it has no other means."""

    near: Process
    far: Process
    """The processes, while they run."""

    def __init__(self, ends: tuple[End, End], folder: Path, options: Options) -> None:
        self.ends = ends
        self.folder = folder
        self.options = options
        self._stack = ExitStack()

    @abstractmethod
    def start(self) -> None:
        """Start both processes, by :meth:`run`, and assign the devices' addresses."""

    def __enter__(self) -> Self:
        if self.options.backpressure and self.asks_itself:
            raise Unsupported(f"{self.name} cannot be given upstream's flag")
        with ExitStack() as stack:
            stack.callback(self._stack.close)
            self.start()
            for end in self.ends:
                self._tune(end)
            self.until(self.passes)
            stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(
        self,
        end: End,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Process:
        env = dict(env or {})
        if self.options.backpressure:
            env["LD_PRELOAD"] = str(self.options.backpressure)
        process = Process(
            argv,
            self.folder / f"{end.device}.log",
            netns=end.netns,
            cpu=self.options.cpus[self.ends.index(end)] if self.options.cpus else None,
            env=env,
            pass_fds=pass_fds,
        )
        return self._stack.enter_context(process)

    def until(self, condition: Callable[[], bool]) -> None:
        ended: list[str] = []

        def over() -> bool:
            if condition():
                return True
            ended[:] = [process.name for process in self.processes if not process.is_running]
            return bool(ended)

        if not wait_until(over, UP_TIMEOUT_S, step_s=0.05) or ended:
            what = f"{ended[0]} ended" if ended else "the tunnel is not up"
            lines = [process.log_text()[-1500:].split("\n") for process in self.processes]
            logs = " | ".join(" / ".join(filter(None, some)) for some in lines)
            raise GuestError(f"{self.name}: {what}: {logs}")

    @property
    def processes(self) -> list[Process]:
        return [self.__dict__[side] for side in ("far", "near") if side in self.__dict__]

    def lost(self) -> list[str]:
        """Return the messages about a lost peer in the processes' logs."""
        logs = "".join(process.log_text() for process in self.processes)
        return [word for word in self.trouble if word in logs]

    def exists(self, end: End) -> bool:
        return end.device in tool(in_netns(end.netns, ["cat", "/proc/net/dev"]))

    def configure(self, end: End) -> None:
        """Wait for an end's device, assign its address and bring it up."""
        self.until(lambda: self.exists(end))
        other = self.ends[0] if end is self.ends[1] else self.ends[1]
        lines = [
            f"address flush dev {end.device}",
            f"address add {end.inner} peer {other.inner}/32 dev {end.device}",
            f"link set dev {end.device} up",
        ]
        ip_batch(lines, netns=end.netns)

    def _tune(self, end: End) -> None:
        if not self.options.offloads:
            words = ["ethtool", "-K", end.device, "tso", "off", "gso", "off"]
            tool(in_netns(end.netns, words))

    def passes(self) -> bool:
        """Return whether the far end replies to a ping from the near end."""
        near, far = self.ends
        words = ["ping", "-n", "-q", "-c", "1", "-W", f"{scaled(1):.0f}", far.inner]
        try:
            tool(in_netns(near.netns, words))
        except GuestError as error:
            if "not installed" in str(error):
                raise
            return False
        return True


@contextmanager
def veth_pair(near: End, far: End) -> Iterator[None]:
    """Join the ends by a veth pair; create and delete their namespaces."""
    names = [end.netns for end in (near, far) if end.netns]
    with namespaces(*names):
        ip_batch([f"link add {VETH[0]} type veth peer name {VETH[1]}"])
        try:
            for end, device in zip((near, far), VETH, strict=True):
                if end.netns:
                    ip_batch([f"link set dev {device} netns {end.netns}"])
                lines = [f"address add {end.outer}/24 dev {device}", f"link set dev {device} up"]
                ip_batch(lines, netns=end.netns)
            yield
        finally:
            # The namespaces' devices are removed some time after them.
            ip_batch([f"link delete {VETH[0]}"], netns=near.netns)


UP = "Initialization Sequence Completed"


class OpenVpn(Vpn):
    """The near end is the TLS server; each end knows the fingerprint of its peer's certificate."""

    name = "openvpn"
    trouble = ("Restart pause", "Inactivity timeout", "process restarting", "TLS Error")

    def start(self) -> None:
        near, far = self.ends
        near_print, far_print = self.make_key(near), self.make_key(far)
        self.far = self._start(far, near, "client", near_print)
        self.near = self._start(near, far, "server", far_print)
        self.until(lambda: all(UP in process.log_text() for process in self.processes))

    def make_key(self, end: End) -> str:
        """Create a self-signed certificate; return its fingerprint."""
        key, certificate = (str(self.folder / f"{end.device}.{kind}") for kind in ("key", "crt"))
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "30"]
        words += ["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", f"/CN={end.device}"]
        tool([*words, "-keyout", key, "-out", certificate], timeout=time_limit(30))
        words = ["openssl", "x509", "-in", certificate, "-noout", "-fingerprint", "-sha256"]
        return tool(words).strip().partition("=")[2]

    def _start(self, end: End, other: End, role: str, fingerprint: str) -> Process:
        return self.run(end, ["openvpn", *self.arguments(end, other, role, fingerprint)])

    def arguments(self, end: End, other: End, role: str, fingerprint: str) -> list[str]:
        """Return an end's options; role: "client" or "server"."""
        words = [f"--tls-{role}", "--dev", end.device, "--dev-type", "tun"]
        words += ["--local", end.outer, "--remote", other.outer]
        words += ["--ifconfig", end.inner, other.inner]
        words += ["--peer-fingerprint", fingerprint, "--dh", "none"]
        words += ["--key", str(self.folder / f"{end.device}.key")]
        words += ["--cert", str(self.folder / f"{end.device}.crt")]
        # Data channel offload would use no TUN device.
        words += ["--disable-dco", "--ping", "1", "--ping-restart", f"{time_limit(20):.0f}"]
        return [*words, "--verb", "3"]


PORT = 51820
NEBULA_PORT = 4242
YGGDRASIL_PORT = 9001


class WireguardGo(Vpn):
    """A process at each end, configured by wg(8) through a socket named after the device."""

    name = "wireguard-go"
    listens = "UAPI listener started"
    """Logged when it can be configured; wg(8) removes a socket on which no process listens yet."""
    environment: ClassVar[dict[str, str]] = {"WG_PROCESS_FOREGROUND": "1", "LOG_LEVEL": "verbose"}

    def start(self) -> None:
        keys = [tool(["wg", "genkey"]).strip() for _ in self.ends]
        public = [tool(["wg", "pubkey"], text=key).strip() for key in keys]
        near, far = self.ends
        flags = self._flags_asked_for(near) if self.options.backpressure else None
        self.near, self.far = self._start(near, flags), self._start(far, flags)
        self.until(lambda: all(self.listens in process.log_text() for process in self.processes))
        for end, other, key, peer in zip(
            self.ends, reversed(self.ends), keys, reversed(public), strict=True
        ):
            file = self.folder / f"{end.device}.key"
            file.write_text(key)
            words = ["wg", "set", end.device, "listen-port", str(PORT), "private-key", str(file)]
            words += ["peer", peer, "allowed-ips", "0.0.0.0/0"]
            tool(in_netns(end.netns, [*words, "endpoint", f"{other.outer}:{PORT}"]))
            self.configure(end)

    def _flags_asked_for(self, end: End) -> int | None:
        """Return the flags with which this version opens a device, from a first trial start."""
        log = self.folder / "flags.log"
        with Process(self._words(end), log, netns=end.netns, env=self.environment):
            self.until(lambda: self.exists(end))
            flags = opened_flags(end.device, netns=end.netns)
        self.until(lambda: not self.exists(end))
        return flags

    def _start(self, end: End, flags: int | None) -> Process:
        """Start an end's process; it creates its device (None), or gets one with upstream's flag.

        A Go program makes its own system calls, so a preloaded library cannot add the flag.
        """
        if flags is None:
            return self.run(end, self._words(end), env=self.environment)
        with TunDevice(end.device, flags | IFF_BACKPRESSURE, exact=True) as device:
            if end.netns:
                ip_batch([f"link set dev {end.device} netns {end.netns}"])
            env = {**self.environment, "WG_TUN_FD": str(device.fd)}
            return self.run(end, self._words(end), env=env, pass_fds=[device.fd])

    def _words(self, end: End) -> list[str]:
        return [self.name, "-f", end.device]


class WireguardGoShort(WireguardGo):
    """wireguard-go, built with queues of 8 instead of 1024 containers of packets (scripts/vpns)."""

    name = "wireguard-go-short"


class BoringTun(WireguardGo):
    """WireGuard in Rust; each of its threads has a queue of the device."""

    name = "boringtun-cli"
    listens = "BoringTun started successfully"
    environment: ClassVar[dict[str, str]] = {"WG_LOG_LEVEL": "info", "WG_SUDO": "true"}

    def _flags_asked_for(self, end: End) -> None:
        """Return None: it opens its device by the C library, where the flag is added."""


class Tinc(Vpn):
    """tinc 1.0: the far end connects to the near one, each knows the other's public key."""

    name = "tincd"
    trouble = ("Closing connection", "didn't respond to PING")

    def start(self) -> None:
        for end in self.ends:
            self._make_key(end)
        for end, other in zip(self.ends, reversed(self.ends), strict=True):
            source, hosts = self.folder / other.device / "hosts", self.folder / end.device / "hosts"
            shutil.copy(source / other.device, hosts / other.device)
        near, far = self.ends
        self.near = self._start(near)
        self.configure(near)
        with (self.folder / far.device / "tinc.conf").open("a") as file:
            file.write(f"ConnectTo = {near.device}\n")
        self.far = self._start(far)
        self.configure(far)

    def _make_key(self, end: End) -> None:
        folder = self.folder / end.device
        (folder / "hosts").mkdir(parents=True)
        lines = [f"Name = {end.device}", f"Interface = {end.device}", "DeviceType = tun"]
        (folder / "tinc.conf").write_text("\n".join([*lines, "AddressFamily = ipv4\n"]))
        lines = [f"Address = {end.outer}", f"Subnet = {end.inner}/32\n"]
        (folder / "hosts" / end.device).write_text("\n".join(lines))
        words = [self.name, "-c", str(folder), "--generate-keys=2048"]
        tool(words, timeout=time_limit(30), text="\n\n")

    def _start(self, end: End) -> Process:
        folder = self.folder / end.device
        words = [self.name, "-c", str(folder), "--no-detach", "--debug=1"]
        return self.run(end, [*words, f"--pidfile={folder / 'pid'}"])


class Nebula(Vpn):
    """The far end knows the near one's address; one authority signed both certificates."""

    name = "nebula"
    asks_itself = True

    def start(self) -> None:
        authority = ["-out-crt", f"{self.folder}/ca.crt", "-out-key", f"{self.folder}/ca.key"]
        tool(["nebula-cert", "ca", "-name", "test", *authority])
        for end in self.ends:
            base = f"{self.folder}/{end.device}"
            words = ["-ca-crt", f"{self.folder}/ca.crt", "-ca-key", f"{self.folder}/ca.key"]
            words += ["-out-crt", f"{base}.crt", "-out-key", f"{base}.key"]
            words += ["-name", end.device, "-networks", f"{end.inner}/24"]
            tool(["nebula-cert", "sign", *words])
        near, far = self.ends
        self.near, self.far = self._start(near, far), self._start(far, near)
        for end in self.ends:
            self.configure(end)

    def _start(self, end: End, other: End) -> Process:
        base = self.folder / end.device
        all_of_it = [{"port": "any", "proto": "any", "host": "any"}]
        settings = {
            "pki": {"ca": f"{self.folder}/ca.crt", "cert": f"{base}.crt", "key": f"{base}.key"},
            "static_host_map": {other.inner: [f"{other.outer}:{NEBULA_PORT}"]},
            "lighthouse": {"am_lighthouse": False},
            "listen": {"host": end.outer, "port": NEBULA_PORT},
            "tun": {"dev": end.device},
            "firewall": {"outbound": all_of_it, "inbound": all_of_it},
        }
        file = base.with_suffix(".yml")
        # JSON is YAML.
        file.write_text(json.dumps(settings))
        return self.run(end, [self.name, "-config", str(file)])


class Yggdrasil(Vpn):
    """An IPv6 address follows from each end's key, so ``inner`` changes. Its links are TCP."""

    name = "yggdrasil"
    asks_itself = True

    def start(self) -> None:
        near, far = self.ends
        link = f"tcp://{near.outer}:{YGGDRASIL_PORT}"
        near, far = self._make_key(near, Listen=[link]), self._make_key(far, Peers=[link])
        self.ends = (near, far)
        self.near = self._start(near)
        self.until(lambda: "TCP listener" in self.near.log_text())
        self.far = self._start(far)
        for end in self.ends:
            self.until(partial(self.exists, end))

    def _make_key(self, end: End, **links: list[str]) -> End:
        settings = json.loads(tool([self.name, "-genconf", "-json"]))
        settings |= {"AdminListen": "none", "MulticastInterfaces": [], "IfName": end.device}
        settings |= links
        file = self.folder / f"{end.device}.json"
        file.write_text(json.dumps(settings))
        inner = tool([self.name, "-useconffile", str(file), "-address"]).strip()
        return replace(end, inner=inner)

    def _start(self, end: End) -> Process:
        file = self.folder / f"{end.device}.json"
        return self.run(end, [self.name, "-useconffile", str(file)])


PACKAGED: dict[str, type[Vpn]] = {kind.name: kind for kind in (OpenVpn, WireguardGo)}
"""The VPNs of the lab's Debian systems, by their names."""
KINDS = PACKAGED | {
    kind.name: kind for kind in (WireguardGoShort, BoringTun, Nebula, Tinc, Yggdrasil)
}
"""All VPNs by their names."""

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
