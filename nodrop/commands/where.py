# SPDX-License-Identifier: GPL-2.0-only
"""Which namespaces and devices a command covers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from nodrop.errors import NodropError, UsageError
from nodrop.host.build import build
from nodrop.host.model import Device, Host
from nodrop.host.read import SPACES_S, read

NONE = "There is no TUN, TAP, macvtap, ipvtap or tunnel device here."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that select devices and namespaces."""
    parser.add_argument("device", nargs="*", metavar="DEV", help="only these devices")
    parser.add_argument(
        "-A", "--all-namespaces", action="store_true", help="devices of all network namespaces"
    )


def check(arguments: argparse.Namespace) -> None:
    """Raise UsageError for both --netns and --all-namespaces."""
    if arguments.netns and arguments.all_namespaces:
        raise UsageError("--netns and --all-namespaces cannot be combined.")


def look(arguments: argparse.Namespace) -> Host:
    """Read the machine in the selected namespaces.

    Raises:
        NodropError: there is no such namespace, or no permission to enter it.
    """
    check(arguments)
    return build(read(arguments.netns, everywhere=arguments.all_namespaces))


def pick(host: Host, names: Sequence[str]) -> tuple[Device, ...]:
    """Return the devices named ``DEVICE`` or ``NAMESPACE/DEVICE``; all without names.

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
                f"Devices here: {known}." if known else "'nodrop status -A' lists all devices.",
            )
    return tuple(device for device in host.devices if {device.name, device.label} & set(names))


def hidden(host: Host) -> str:
    """Return the remark on processes that could not be inspected."""
    count = host.hidden_processes
    text = f"{count} process{'' if count == 1 else 'es'} could not be inspected, so owners may be "
    return text + ("missing." if host.root else "missing; root sees them.")


def unread(host: Host) -> list[str]:
    """Return the remarks on namespaces that were not read."""
    lines = [f"Namespace {name} is not shown: {why}" for name, why in sorted(host.unread.items())]
    if more := len(lines[5:]):
        lines[5:] = [f"{more} more namespaces could not be read; -j lists them."]
    if host.unreached:
        lines.append(
            f"{host.unreached} more namespaces were not read within {SPACES_S:g} s: -n shows one."
        )
    return lines
