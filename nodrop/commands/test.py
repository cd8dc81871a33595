# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop test``: a live device under load, with backpressure off, on, off."""

from __future__ import annotations

import argparse
import errno
import fcntl
import ipaddress
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from nodrop import screen
from nodrop.commands import common
from nodrop.errors import NodropError, UsageError, refused
from nodrop.host import netns, procfs, settings
from nodrop.host.counters import Counters, total
from nodrop.host.model import Device
from nodrop.host.read import Raw, RawNamespace, build, namespace, read
from nodrop.host.rtnetlink import Requests
from nodrop.host.settings import BACKPRESSURE, Default
from nodrop.proc import join
from nodrop.screen import Cell, Column
from nodrop.traffic import load
from nodrop.traffic.echo import INTERVAL_S, WAIT_S, round_trips
from nodrop.traffic.sockets import Address, connected

PHASES = ("off", "on", "off")
"""Backpressure in each phase: a drift during the test shows between the first and the last."""
IDLE_S = 1.0
DRAIN_S = 10.0
"""How long a phase waits at most until the packets of the one before have passed."""
SETTLE_S = 0.5
"""Time from the start of the load to the first request, seconds."""
LOCK = Path("/run/nodrop-test.lock")
_INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_BAR = 24
"""Width of the longest bar, in characters."""
_COLUMNS = (
    Column("MEASURED"),
    Column("BACKPRESSURE"),
    Column("VALUE", right=True),
    Column("OF THE LARGEST", 0),
)
_ROWS = (
    ("round trip p50, ms", "round_trip_p50_ms", ".2f"),
    ("round trip p99, ms", "round_trip_p99_ms", ".2f"),
    ("echoes lost", "lost_echoes", "d"),
    ("to reader, Mbit/s", "delivered_mbit_per_s", ".1f"),
    ("TCP goodput, Mbit/s", "acked_mbit_per_s", ".1f"),
    ("driver drops", "driver_dropped_packets", "d"),
    ("qdisc drops", "qdisc_dropped_packets", "d"),
)
"""Rows of the table: title, key of a result, format."""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "test",
        description="Measure round trips (ICMP echo), throughput and drops of a TUN or TAP device "
        "under full load, with backpressure off, on, off, in about 15 seconds. ADDRESS is behind "
        "the device, such as the peer's in the tunnel; it must reply to ping. Other traffic of the "
        "device and of the path to ADDRESS suffers. The setting is restored at the end, after an "
        "error, Ctrl-C and SIGTERM; not after SIGKILL: 'nodrop set --now DEV backpressure on'.",
    )
    parser.add_argument("device", metavar="DEV", help="a device with nodrop's driver")
    parser.add_argument("address", metavar="ADDRESS", help="an IPv4 or IPv6 address behind it")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--rate",
        type=_up_to(10**6),
        default=1000,
        metavar="MBIT",
        help="send at most that much UDP, to port 9, Mbit/s (1000)",
    )
    which.add_argument(
        "--tcp",
        type=_up_to(65535),
        metavar="PORT",
        help="send TCP instead, to this port, which must accept data",
    )
    parser.add_argument(
        "--seconds",
        type=common.seconds_from(0.5, 60),
        default=3.0,
        metavar="S",
        help="time of each of the three measurements, 0.5 to 60 (3)",
    )
    parser.set_defaults(run=run)


def _up_to(most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = common.positive_int(text)
        if value > most:
            raise argparse.ArgumentTypeError(f"must be at most {most}")
        return value

    return number


def run(arguments: argparse.Namespace) -> int:
    address, where = _address(arguments.address), arguments.netns
    (name,) = settings.real_names(where, [arguments.device])
    settings.require_switch(settings.read_switches(where, [name])[0], True, Default(BACKPRESSURE))
    if not procfs.capable(procfs.CAP_NET_ADMIN):
        raise refused(f"test {name}", errno.EPERM, "CAP_NET_ADMIN, CAP_NET_RAW")
    raw = read(where)
    (device,) = common.select(build(raw), [name])
    _check(device, address, where)
    with _alone():
        try:
            return _test(arguments, raw, device, address)
        except OSError as error:
            raise NodropError(
                f"{name} cannot be tested: {error.strerror or error}.",
                f"Does port {arguments.tcp} accept data?" if arguments.tcp else "",
            ) from error


def _test(arguments: argparse.Namespace, raw: Raw, device: Device, address: Address) -> int:
    name, where = device.name, arguments.netns
    with common.progress(arguments) as progress:
        with progress.step("Measure the idle round trip"):
            trips = netns.run_inside(where, partial(round_trips, device.ifindex, address, IDLE_S))
            idle = _summary(trips)
        if idle["lost_echoes"] == idle["echoes"]:
            raise NodropError(
                f"{address} does not reply to echo requests through {name}.",
                "Name the address of a peer that replies to ping.",
            )
        text = _announcement(arguments, device, address)
        if arguments.yes:
            progress.note(text)
    if not arguments.yes:
        common.confirm(text)
    phases = []
    handlers = _interrupt_once()
    try:
        with common.progress(arguments) as progress:
            for value in PHASES:
                with progress.step(f"Load {name}, backpressure {value}"):
                    _switch(where, device, value == "on")
                    phase = partial(_phase, arguments, device, address, idle["round_trip_p99_ms"])
                    measured = netns.run_inside(where, phase)
                result = _result(raw, device, measured, tcp=bool(arguments.tcp))
                phases.append({"backpressure": value, **result})
    finally:
        try:
            _ignore()
        finally:  # also if a last signal has interrupted that
            _restore(where, device, handlers)
    if arguments.json:
        data = {
            "netns": where,
            "device": name,
            "address": str(address),
            "protocol": "tcp" if arguments.tcp else "udp",
            "port": arguments.tcp or load.DISCARD,
            "most_mbit_per_s": None if arguments.tcp else arguments.rate,
            "backpressure": _value(device),
            "idle": idle,
            "phases": phases,
        }
        common.print_json("test", data)
    else:
        _print(arguments, device, idle, phases)
    return 0


def _value(device: Device) -> str:
    return "on" if device.enabled else "off"


def _address(text: str) -> Address:
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise UsageError(f"'{text}' is not an IP address.", "Name one such as 10.8.0.2.") from error
    if address.is_multicast:
        raise UsageError(f"{address} is not the address of one host.")
    return address


def _check(device: Device, address: Address, where: str | None) -> None:
    """Raise NodropError if packets to the address do not go through the device."""
    if not device.up:
        command = f"ip link set dev {join(device.name)} up"
        raise NodropError(f"{device.name} is down.", netns.prefix(where) + command)
    if not device.carrier:
        raise NodropError(f"No program has {device.name} open.", "Start its VPN or guest.")
    if address.version == 6 and address.is_link_local:
        return  # the sockets are bound to the device

    def through() -> int:
        with suppress(OSError), Requests() as requests:
            return requests.route(address.packed)
        return 0

    if netns.run_inside(where, through) != device.ifindex:
        raise NodropError(
            f"{address} is not routed through {device.name}.",
            f"'ip route get {address}' shows its route. Name the peer's address in the tunnel; a "
            "bridge's port cannot be tested.",
        )


@contextmanager
def _alone() -> Iterator[None]:
    """Lock against other tests on this machine: each would distort the other's results."""
    with ExitStack() as stack:
        try:
            # In /run and not readable, so that only root can lock it.
            lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            hint = "Run this again when it has ended."
            raise NodropError("Another 'nodrop test' runs.", hint) from error
        except OSError as error:
            raise settings.file_error(LOCK, error) from error
        yield


def _announcement(arguments: argparse.Namespace, device: Device, address: Address) -> str:
    most = f"up to {arguments.rate} Mbit/s of UDP to {address}"
    if arguments.tcp:
        most = f"as much TCP as passes to port {arguments.tcp} of {address}"
    return (
        f"{device.name} will carry {most}, three times for up to "
        f"{SETTLE_S + arguments.seconds + WAIT_S:g} s, with backpressure {', '.join(PHASES)}. "
        f"Other traffic through {device.name} and on the path to {address} will be delayed and "
        f"dropped. Then backpressure will be {_value(device)} again."
    )


def _switch(where: str | None, device: Device, on: bool) -> None:
    """Switch the device; OSError if it was deleted, even if another has its name now."""

    def switch() -> None:
        settings.turn(None, socket.if_indextoname(device.ifindex), on)

    netns.run_inside(where, switch)


def _interrupt_once() -> dict[int, Any]:
    """Let one signal interrupt, which then ignores others; return the handlers before."""
    before: dict[int, Any] = {number: signal.getsignal(number) for number in _INTERRUPTING}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _once)
    return before


def _once(*_: object) -> None:
    _ignore()
    raise KeyboardInterrupt


def _ignore() -> None:
    """Ignore signals, also in children, which Ctrl-C would kill."""
    for number in _INTERRUPTING:
        signal.signal(number, signal.SIG_IGN)


def _restore(where: str | None, device: Device, handlers: Mapping[int, Any]) -> None:
    """Restore the setting of a device, if it still exists, and signal handlers."""
    try:
        with suppress(OSError):
            _switch(where, device, device.enabled)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _drain(device: Device, address: Address, idle_ms: float) -> None:
    """Wait until an echo takes no longer than when idle, or twice that."""
    end = time.monotonic() + DRAIN_S
    while time.monotonic() < end:
        trips = round_trips(device.ifindex, address, INTERVAL_S)
        if any(trip is not None and trip <= 2 * idle_ms for trip in trips):
            break


def _phase(
    arguments: argparse.Namespace, device: Device, address: Address, idle_ms: float
) -> dict[str, Any]:
    """Measure under load: the counters before and after, and what the load did in between."""
    _drain(device, address, idle_ms)
    port, kind = load.DISCARD, socket.SOCK_DGRAM
    send: Callable[[socket.socket, load.Control], None] = partial(load.udp, arguments.rate)
    if arguments.tcp:
        port, kind, send = arguments.tcp, socket.SOCK_STREAM, load.tcp
    sock = connected(device.ifindex, address, kind, port=port)
    with sock, load.running(send, sock, arguments.seconds + 60) as control:
        time.sleep(SETTLE_S)
        before, begun = vars(namespace("")), control.done
        trips = round_trips(device.ifindex, address, arguments.seconds)
        after, ended = vars(namespace("")), control.done
    socket.if_indextoname(device.ifindex)  # OSError if it was deleted meanwhile
    return {"before": before, "after": after, "trips": trips, "done": ended - begun}


def _result(raw: Raw, device: Device, measured: Mapping[str, Any], *, tcp: bool) -> dict[str, Any]:
    before, after = (RawNamespace(**measured[name]) for name in ("before", "after"))
    grown = _counters(raw, after, device).since(_counters(raw, before, device))
    duration, done = after.time_s - before.time_s, measured["done"]

    def mbit_per_s(count: int | None) -> float | None:
        return None if count is None else round(count * 8e-6 / duration, 3)

    return {
        "duration_s": round(duration, 3),
        **_summary(measured["trips"]),
        "offered_packets": None if tcp else done,
        "acked_mbit_per_s": mbit_per_s(done) if tcp else None,
        "delivered_packets": grown.link.get("tx_packets"),
        "delivered_mbit_per_s": mbit_per_s(grown.link.get("tx_bytes")),
        "driver_dropped_packets": grown.link.get("tx_dropped"),
        "qdisc_dropped_packets": grown.qdisc.get("drops"),
        "stops": total(grown.queues.values()).get("stops"),
    }


def _counters(raw: Raw, space: RawNamespace, device: Device) -> Counters:
    devices = build(replace(raw, namespaces=[space])).devices
    return next(other.counters for other in devices if other.ifindex == device.ifindex)


def _summary(trips: Sequence[float | None]) -> dict[str, Any]:
    came = sorted(trip for trip in trips if trip is not None)

    def percentile(share: float) -> float | None:
        return round(came[math.ceil(share * len(came)) - 1], 3) if came else None

    return {
        "echoes": len(trips),
        "lost_echoes": len(trips) - len(came),
        "round_trip_p50_ms": percentile(0.5),
        "round_trip_p99_ms": percentile(0.99),
    }


def _print(
    arguments: argparse.Namespace,
    device: Device,
    idle: Mapping[str, Any],
    phases: Sequence[Mapping[str, Any]],
) -> None:
    out = screen.console(arguments)
    out.table(_COLUMNS, _cells([{"backpressure": "idle", **idle}, *phases]))
    if not any(phase["driver_dropped_packets"] or phase["stops"] for phase in phases):
        more = "" if arguments.tcp else " --rate offers more."
        out.text(f"The reader of {device.name} was faster than the load.{more}")
    if device.qdisc.kind == "noqueue":
        out.text(f"{device.name} has no qdisc, so it also drops with backpressure on.")
    out.text(f"Backpressure of {device.name} is {_value(device)} again.")


def _cells(results: Sequence[Mapping[str, Any]]) -> Iterator[list[Cell]]:
    for title, key, form in _ROWS:
        shown = [result for result in results if result.get(key) is not None]
        most = max((result[key] for result in shown), default=0) or 1
        for result in shown:
            bar = "#" * math.ceil(_BAR * (result[key] / most))
            yield [title, result["backpressure"], f"{result[key]:{form}}", bar]
            title = ""
