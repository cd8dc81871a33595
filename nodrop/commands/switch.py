# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop enable`` and ``nodrop disable``: devices by name, or the default for all others."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nodrop.columns import clean
from nodrop.commands import common
from nodrop.errors import NodropError, UsageError
from nodrop.host import netns, switch
from nodrop.host.default import Default
from nodrop.shell import join

Action = tuple[str, Callable[[], None]]
"""A command that people know, and the function that does it."""


@dataclass
class Plan:
    """What is to be done, and what it is told of.

    Attributes:
        actions: in this order.
        devices: what -j tells of each device.
        default: what -j tells of the default.
        sentences: for people.
    """

    actions: list[Action] = field(default_factory=list)
    devices: list[dict[str, Any]] = field(default_factory=list)
    default: dict[str, Any] | None = None
    sentences: list[str] = field(default_factory=list)


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the arguments of both commands."""
    for name, on, text, which in (
        ("enable", True, "hold packets back", "on"),
        ("disable", False, "drop packets as the kernel's own driver does", "off"),
    ):
        parser = commands.add_parser(
            name,
            description=f"Make TUN and TAP devices {text}, at once: nodrop's flag, {which}. "
            "A device keeps that until it goes, or until it is switched again.",
        )
        parser.add_argument("devices", nargs="*", metavar="DEV", help="a TUN or TAP device")
        parser.add_argument(
            "--default",
            action="store_true",
            help="devices that nobody switched by name; now and after a reboot",
        )
        parser.add_argument("--dry-run", action="store_true", help="say what would be done")
        parser.set_defaults(run=run, on=on, name=name)


def run(arguments: argparse.Namespace) -> int:
    """Run one of the commands."""
    names = list(dict.fromkeys(arguments.devices))
    if bool(names) == arguments.default:
        raise UsageError(
            "Name devices, or say --default.", f"nodrop {arguments.name} DEV... | --default"
        )
    if arguments.default and arguments.netns is not None:
        raise UsageError("The default is for all network namespaces.", "Leave -n out.")
    plan = Plan()
    if names:
        _plan_devices(plan, names, arguments)
    else:
        _plan_default(plan, arguments)
    if not arguments.dry_run:
        _do(plan)
    if arguments.json:
        told = {
            "dry_run": arguments.dry_run,
            "netns": arguments.netns,
            "devices": plan.devices,
            "default": plan.default,
            "actions": [text for text, _ in plan.actions],
        }
        common.print_json(arguments.name, told)
    elif arguments.dry_run:
        print("\n".join([text for text, _ in plan.actions] or ["Nothing is to be done."]))
    else:
        print("\n".join(map(clean, plan.sentences)))
    return 0


def _do(plan: Plan) -> None:
    done: list[str] = []
    for text, do in plan.actions:
        try:
            do()
        except NodropError as error:
            if done:
                error.hint = "\n".join(filter(None, [error.hint, "Done before:", *done]))
            raise
        done.append(text)


def _plan_devices(plan: Plan, names: list[str], arguments: argparse.Namespace) -> None:
    """Look at all devices before the first is switched."""
    where, on, dry = arguments.netns, arguments.on, arguments.dry_run
    default = Default()
    devices = switch.look(where, names)
    for device in devices:
        switch.require(device, on, default)
    for device in devices:
        name, was = device.name, bool(device.on)
        if was == on:
            own = " (the kernel's own driver)" if device.on is None else ""
            plan.sentences.append(f"{name} is {_word(on)} already{own}.")
        else:
            words = ("ethtool", "--set-priv-flags", name, switch.FLAG, _word(on))
            text = netns.prefix(where) + join(*words)
            plan.actions.append((text, partial(switch.turn, where, name, on)))
            until = "it is deleted" if device.persistent else "its program ends"
            plan.sentences.append(f"{name} is {_word(on)} until {until}, and not after a reboot.")
        plan.devices.append(
            {
                "name": name,
                "was": _word(was),
                "now": _word(was if dry else on),
                "switch": device.on is not None,
                "persistent": device.persistent,
            }
        )


def _plan_default(plan: Plan, arguments: argparse.Namespace) -> None:
    on, dry = arguments.on, arguments.dry_run
    default = Default()
    default.require(on)
    loaded, next_load = default.loaded, default.next_load
    # The file first: where it cannot be written nothing is changed.
    if next_load != on:
        text = f"rm {default.file}" if on else f"echo 'options tun nodrop=0' > {default.file}"
        plan.actions.append((text, lambda: default.set_next_load(on)))
    if loaded not in (None, on):
        plan.actions.append(_loaded(default, on))
    if plan.actions:
        plan.sentences.append(f"The default is {_word(on)}, and stays so after a reboot.")
    else:
        plan.sentences.append(f"The default is {_word(on)} already.")
    if loaded is None:
        plan.sentences.append("It counts from when nodrop's tun is loaded; it is not now.")
    elif loaded != on:
        plan.sentences.append("Devices that nobody switched by name follow it at once.")
    plan.default = {
        "loaded_was": None if loaded is None else _word(loaded),
        "loaded_now": None if loaded is None else _word(loaded if dry else on),
        "next_load_was": _word(next_load),
        "next_load_now": _word(next_load if dry else on),
        "file": str(default.file),
    }


def _loaded(default: Default, on: bool) -> Action:
    return f"echo {'Y' if on else 'N'} > {default.parameter}", partial(default.set_loaded, on)


def _word(on: bool) -> str:
    return "on" if on else "off"
