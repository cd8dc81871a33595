# SPDX-License-Identifier: GPL-2.0-only
"""The switch of a TUN or TAP device: the private flag "nodrop", if its driver has it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from nodrop.errors import NodropError, UnsupportedError
from nodrop.host import ethtool, netns
from nodrop.host.default import Default

FLAG = "nodrop"
_CLASS = Path("/sys/class/net")
_IFF_BACKPRESSURE = 0x0080
_IFF_PERSIST = 0x0800
_ONE_FOR_ALL = "All macvtap and ipvtap share one switch: /sys/module/tap/parameters/nodrop."
_INSTALL = "'nodrop livepatch load' patches the running driver; 'nodrop install' replaces it."


@dataclass(frozen=True)
class Device:
    """A TUN or TAP device and its switch.

    Attributes:
        name: name of the device.
        on: whether backpressure is on; None: its driver has no switch.
        asked: whether its application set upstream's flag.
        persistent: whether it outlives its application.
    """

    name: str
    on: bool | None
    asked: bool
    persistent: bool


def names(where: str | int | Path | None) -> dict[str, bool]:
    """Return the devices of a network namespace (None: this one) -> whether they are TUN or TAP.

    Raises:
        NodropError: there is no such namespace.
    """

    def here() -> dict[str, bool]:
        with ethtool.Socket() as sock:
            return {name: _is_tun(name, sock) for _, name in socket.if_nameindex()}

    found: dict[str, bool] = netns.run_inside(where, here)
    return found


def look(where: str | int | Path | None, names: Sequence[str]) -> list[Device]:
    """Return devices of a network namespace (None: this one), in the order of their names.

    Raises:
        NodropError: a device does not exist or is not a TUN or TAP; there is no such namespace.
    """
    found = netns.run_inside(where, lambda: [asdict(_look(name)) for name in names])
    return [Device(**device) for device in found]


def turn(where: str | int | Path | None, name: str, on: bool) -> None:
    """Switch a device that has a switch; switching it off wakes blocked senders.

    Raises:
        NodropError: the device was deleted, or permission is missing.
    """
    netns.run_inside(where, lambda: _turn(name, on))


def require(device: Device, on: bool, default: Default) -> None:
    """Check that a device can be switched as wanted.

    Raises:
        UnsupportedError: its driver has no switch; the hint explains how to get one.
    """
    if device.on is not None or (not on and not device.asked):
        return
    if device.asked:
        raise UnsupportedError(
            f"{device.name} has upstream's flow control, which only its application can switch.",
            _INSTALL if on else "Only its application can switch it off.",
        )
    if default.installed:
        hint = (
            "nodrop's driver is installed but not loaded: reboot, or 'nodrop install' reports what "
            "to restart. 'nodrop livepatch load' keeps all sessions open."
        )
    else:
        hint = _INSTALL
    raise UnsupportedError(f"{device.name} uses the stock driver, which drops.", hint)


def _look(name: str) -> Device:
    try:
        driver = ethtool.driver(name)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise _sentence(name, error) from error
        driver = ""
    if driver != "tun":
        raise NodropError(
            f"{name} is no TUN or TAP device.",
            _ONE_FOR_ALL
            if driver in ("macvlan", "ipvlan")
            else f"Its driver is {driver}; only devices of tun can be switched."
            if driver
            else "",
        )
    try:
        on = ethtool.private_flags(name).get(FLAG)
    except OSError as error:
        raise _sentence(name, error) from error
    flags = 0
    with suppress(OSError, ValueError):
        flags = int((_CLASS / name / "tun_flags").read_text(), 16)
    asked = on is None and bool(flags & _IFF_BACKPRESSURE)
    return Device(name, on, asked, bool(flags & _IFF_PERSIST))


def _is_tun(name: str, sock: ethtool.Socket) -> bool:
    with suppress(OSError):
        return ethtool.driver(name, sock) == "tun"
    return False


def _turn(name: str, on: bool) -> None:
    try:
        ethtool.set_private_flag(name, FLAG, on)
    except OSError as error:
        raise _sentence(name, error) from error


def _sentence(name: str, error: OSError) -> NodropError:
    if error.errno == errno.ENODEV:
        return NodropError(
            f"There is no device {name} here.", "See 'ip link', or select a namespace with -n."
        )
    if error.errno in (errno.EPERM, errno.EACCES):
        return NodropError(f"Only root can switch {name} (CAP_NET_ADMIN).", "Run this as root.")
    if error.errno == errno.EOPNOTSUPP:
        return UnsupportedError(f"{name} has no switch any more: its driver was changed.")
    return NodropError(f"{name} cannot be switched: {error.strerror}.")
