# SPDX-License-Identifier: GPL-2.0-only
"""Where a command looks: which namespaces, which devices."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from nodrop.errors import NodropError, UsageError
from nodrop.host.build import build
from nodrop.host.model import Device, Host
from nodrop.host.read import SPACES_S, read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a command that looks at devices."""
    parser.add_argument("device", nargs="*", metavar="DEV", help="only these devices")
    parser.add_argument(
        "-A", "--all-namespaces", action="store_true", help="in every network namespace"
    )


def check(arguments: argparse.Namespace) -> None:
    """Refuse a command line that says two places."""
    if arguments.netns and arguments.all_namespaces:
        raise UsageError("Say either --netns or --all-namespaces.")


def look(arguments: argparse.Namespace) -> Host:
    """Read the machine, where the command line says.

    Raises:
        NodropError: there is no such namespace, or no right to enter it.
    """
    check(arguments)
    return build(read(arguments.netns, everywhere=arguments.all_namespaces))


def pick(host: Host, names: Sequence[str]) -> tuple[Device, ...]:
    """Return the named devices, or all; a name is that of a device, or ``NAMESPACE/DEVICE``.

    Raises:
        NodropError: there is no such device.
    """
    if not names:
        return host.devices
    for name in names:
        if not any(name in (device.name, device.label) for device in host.devices):
            known = ", ".join(sorted(device.label for device in host.devices)[:10])
            raise NodropError(
                f"There is no TUN, TAP, macvtap, ipvtap or tunnel device {name} here.",
                f"There are: {known}." if known else "There are none at all.",
            )
    return tuple(device for device in host.devices if {device.name, device.label} & set(names))


def unread(host: Host) -> list[str]:
    """Return what is to be said of namespaces that were not read."""
    said = [f"Namespace {name} is not shown: {why}" for name, why in sorted(host.unread.items())]
    if more := len(said[5:]):
        said[5:] = [f"{more} more namespaces could not be read; -j has their names."]
    if host.unreached:
        said.append(
            f"{host.unreached} more namespaces were not read within {SPACES_S:g} s: -n shows one."
        )
    return said
