# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop status``: devices, their owners and drivers, and what they dropped."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import compress

from nodrop import screen
from nodrop.commands import common
from nodrop.commands.common import print_json
from nodrop.host.model import Device, Driver, Host, Module, device_json, driver_cell, host_json
from nodrop.proc import quote
from nodrop.screen import Cell, Column, Screen

NO_OWNER = "none"
"""OWNER of a device that no process has open."""

_COLUMNS = (
    Column("DEVICE"),
    Column("KIND", 4),
    Column("DRIVER"),
    Column("OWNER", 8),
    Column("QUEUES", 4, right=True),
    Column("TXQLEN", 6, right=True),
    Column("QDISC", 7),
    Column("DROPPED", right=True),
    Column("QDISC-DROPS", 5, right=True),
    Column("STOPS", 6, right=True),
    Column("GUARD", 3, right=True),
    Column("LIMIT", 2, right=True),
    Column("VHOST", 1),
    Column("UNIT", 5),
)


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "status",
        description="List TUN, TAP, macvtap, ipvtap and tunnel devices: the process that has each "
        "open, its driver, and dropped packets. STOPS: times a full ring stopped the queue; GUARD: "
        "times the reader was found stalled; LIMIT: packets that the ring may hold now.",
    )
    common.add_device_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    host = common.read_host(arguments)
    devices = common.select(host, arguments.device)
    if arguments.json:
        print_json(
            "status",
            {**host_json(host), "devices": list(map(device_json, devices))},
        )
        return 0
    console = screen.console(arguments)
    console.text(headline(host), "dim")
    print_devices(console, host, devices)
    console.stream.flush()
    messages = screen.messages(arguments)
    for line in remarks(host, devices, _doctor_arguments(arguments)):
        messages.text(line, "dim")
    return 0


def print_devices(console: Screen, host: Host, devices: Sequence[Device]) -> None:
    if not devices:
        console.print(common.NO_DEVICE)
        return
    rows = [row(device, hidden=host.hidden_processes > 0) for device in devices]
    # Leave out columns that are empty everywhere, such as VHOST without vhost-net.
    used = [any(cells[index] for cells in rows) for index in range(len(_COLUMNS))]
    console.table([*compress(_COLUMNS, used)], [[*compress(cells, used)] for cells in rows])


def headline(host: Host) -> str:
    """Return one line on the kernel and the loaded drivers."""
    parts = [f"Linux {host.release}", f"tun {_module_state(host.tun)}"]
    parts.append(f"vhost_net {_module_state(host.vhost_net)}")
    if host.tap.loaded:
        parts.append(f"tap {_module_state(host.tap)}")
    if host.guard_ms is not None:
        parts.append(f"guard {host.guard_ms} ms" if host.guard_ms else "guard off")
    if host.default_on is False:
        parts.append("backpressure off by default")
    return ", ".join(parts)


def _module_state(module: Module) -> str:
    """Return a driver's state for the headline: ``nodrop 1.0.0``."""
    if not module.loaded:
        return "not loaded"
    state = " ".join(filter(None, (str(module.driver), module.version)))
    if not module.built_in:
        return state
    own = "built in" if module.driver is Driver.STOCK else "beside the built-in one"
    return f"{state}, {own}"


def row(device: Device, *, hidden: bool = False) -> Sequence[Cell]:
    """Return a device's row; ``hidden``: whether some processes could not be inspected."""
    trips = device.counter("guard_trips")
    return (
        (device.label, "bold"),
        device.kind,
        "-" if device.driver is None else driver_cell(device),
        _owner(device, hidden),
        "-" if device.tunnel else str(device.queues),
        str(device.txqueuelen),
        device.qdisc.label,
        (str(device.tx_dropped), "red" if device.tx_dropped else ""),
        str(device.qdisc.drops),
        _number(device.counter("stops")),
        (_number(trips), "yellow" if trips else ""),
        _limits(device),
        _workers(device),
        next(filter(None, (owner.cgroup.label for owner in device.owners)), ""),
    )


def _owner(device: Device, hidden: bool) -> Cell:
    if device.tunnel:
        return "kernel"
    if not device.owners:
        return "?" if _may_be_open(device, hidden) else (NO_OWNER, "yellow")
    first = device.owners[0]
    text = f"{first.name}({first.pid})"
    if device.vhost:
        text += "+vhost"
    more = len(device.owners) - 1
    return f"{text} +{more}" if more else text


def _may_be_open(device: Device, hidden: bool) -> bool:
    """Return whether a process that could not be inspected may have the device open."""
    # A macvtap's carrier is its lower device's. A device that is down has none.
    shows = device.kind in ("tun", "tap") and device.up
    return device.queues > 0 or (device.carrier if shows else hidden)


def _workers(device: Device) -> str:
    """Return vhost's threads and the CPU that each last ran on: ``830@3,831@0``."""
    workers = [worker for owner in device.owners for worker in owner.vhost_workers]
    return ",".join(f"{worker['tid']}@{worker['cpu']}" for worker in workers)


def _limits(device: Device) -> str:
    limits = [queue.limit_packets for queue in device.queue if queue.limit_packets is not None]
    if not limits:
        return "-"
    low, high = min(limits), max(limits)
    return str(low) if low == high else f"{low}-{high}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _doctor_arguments(arguments: argparse.Namespace) -> str:
    """Return how to call doctor for the same namespaces."""
    if arguments.all_namespaces:
        return "doctor -A"
    option = "--netns=" if arguments.netns and arguments.netns.startswith("-") else "-n "
    return f"{option}{quote(arguments.netns)} doctor" if arguments.netns else "doctor"


def remarks(host: Host, devices: Sequence[Device], doctor: str = "doctor") -> list[str]:
    """Return remarks on what could not be read, and what to do next.

    Args:
        doctor: arguments that run doctor for these devices.
    """
    lines = []
    hidden = host.hidden_processes > 0
    ownerless = [device for device in devices if not device.tunnel and not device.owners]
    if hidden and any(_may_be_open(device, hidden) for device in ownerless):
        lines.append(common.hidden_remark(host))
    lines += common.unread_remarks(host)
    dropping = [device for device in devices if device.tx_dropped and not device.tunnel]
    if dropping:
        names = ", ".join(device.label for device in dropping[:3]) + (
            " ..." if dropping[3:] else ""
        )
        lines.append(f"{names} dropped packets: 'nodrop {doctor}' reports the cause.")
    return lines
