# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop set``: devices by name or pattern, or the default for all others; now, and kept."""

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
from nodrop.host.default import BACKPRESSURE, STALL_MS, Default
from nodrop.host.rules import Rules, is_pattern, matches
from nodrop.shell import join, quote

KEYS = ("backpressure", "stall-ms")
MOST_MS = 10**6
_VALUES = {"on": "1", "off": "0"}
_WORDS = {"1": "on", "0": "off"}
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
    """Add the command's arguments."""
    parser = commands.add_parser(
        "set",
        usage="nodrop set [--now] [--dry-run] DEV|PATTERN... backpressure on|off|default\n"
        "       nodrop set [--now] [--dry-run] --default backpressure on|off\n"
        "       nodrop set [--now] [--dry-run] --default stall-ms MS",
        description="Set what TUN and TAP devices do, at once, and whenever a device of that name "
        "comes again. 'default' forgets what was kept. stall-ms: how long a reader may take "
        "nothing before its ring drops; 0: for ever.",
    )
    parser.add_argument("devices", nargs="*", metavar="DEV", help="a name, or a pattern: 'vnet*'")
    parser.add_argument("key", choices=KEYS, metavar="KEY", help=", ".join(KEYS))
    parser.add_argument("value", metavar="VALUE", help="on, off, default; milliseconds")
    parser.add_argument("--default", action="store_true", help="all other devices")
    parser.add_argument("--now", action="store_true", help="keep nothing")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    names = list(dict.fromkeys(arguments.devices))
    _check(arguments, names)
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
            "key": arguments.key,
            "devices": plan.devices,
            "default": plan.default,
            "actions": [text for text, _ in plan.actions],
        }
        common.print_json("set", told)
    elif arguments.dry_run:
        print("\n".join([text for text, _ in plan.actions] or ["Nothing is to be done."]))
    else:
        print("\n".join(map(clean, plan.sentences)))
    return 0


def _check(arguments: argparse.Namespace, names: list[str]) -> None:
    """Refuse what makes no sense.

    Raises:
        UsageError: it does not.
    """
    value = arguments.value
    if bool(names) == arguments.default:
        raise UsageError("Name devices, or say --default.", "See 'nodrop set --help'.")
    if arguments.default and arguments.netns is not None:
        raise UsageError("The default is for all network namespaces.", "Leave -n out.")
    if names and arguments.netns is not None and not arguments.now:
        raise UsageError(
            "Settings are kept for devices of the machine's own network namespace.", "Say --now."
        )
    if arguments.key == "stall-ms":
        if names:
            raise UsageError("stall-ms is for all devices.", "Say --default.")
        if not (value.isascii() and value.isdigit() and int(value) <= MOST_MS):
            raise UsageError(f"'{value}' is no number of milliseconds up to {MOST_MS}.")
    elif value not in ("on", "off", *(["default"] if names and not arguments.now else [])):
        known = "on, off or default" if names and not arguments.now else "on or off"
        raise UsageError(f"backpressure is {known}, not '{value}'.")


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
    """Look at all devices before the first is set."""
    rules, now = Rules(), arguments.now
    on = None if arguments.value == "default" else arguments.value == "on"
    here = switch.names(arguments.netns)
    devices: dict[str, switch.Device] = {}
    for name in names:
        found = [one for one in here if matches(name, one)] if is_pattern(name) else [name]
        if not is_pattern(name) and not now and name not in here:
            found = []
            if on is not None:
                comes = f"backpressure is {_word(on)} when it comes"
                plan.sentences.append(f"There is no {name} now; {comes}.")
        devices.update({one.name: one for one in switch.look(arguments.netns, found)})
        if not now:
            rules.require(name)
    if on is not None:
        for device in devices.values():
            switch.require(device, on, Default(BACKPRESSURE))
    if not now:
        _plan_rules(plan, names, on, rules)
    for device in devices.values():
        _plan_device(plan, device, on, arguments)


def _plan_rules(plan: Plan, names: list[str], on: bool | None, rules: Rules) -> None:
    kept = rules.read()
    if on is None:
        for name in names:
            if name in kept:
                text = f"# remove the line of {name} from {rules.file}"
                plan.actions.append((text, partial(rules.keep, name, None)))
            plan.sentences.append(f"Nothing is kept for {name}.")
    # Of rules that match, the last one counts.
    elif list(kept.items())[-len(names) :] != [(name, on) for name in names]:
        for name in names:
            text = f"echo {quote(rules.line(name, on))} >> {rules.file}"
            plan.actions.append((text, partial(rules.keep, name, on)))


def _plan_device(
    plan: Plan, device: switch.Device, on: bool | None, arguments: argparse.Namespace
) -> None:
    name, was, where = device.name, bool(device.on), arguments.netns
    wanted = was if on is None else on
    own = " (the kernel's own driver)" if device.on is None else ""
    until = "it is deleted" if device.persistent else "its program ends"
    stays = f" until {until}" if arguments.now else ", and will be when it comes again"
    if was != wanted:
        words = ("ethtool", "--set-priv-flags", name, switch.FLAG, _word(wanted))
        text = netns.prefix(where) + join(*words)
        plan.actions.append((text, partial(switch.turn, where, name, wanted)))
        plan.sentences.append(f"Backpressure of {name} is {_word(wanted)}{stays}.")
    elif on is None:
        plan.sentences.append(f"Backpressure of {name} stays {_word(was)} until {until}.")
    else:
        plan.sentences.append(f"Backpressure of {name} is {_word(wanted)} already{own}.")
    plan.devices.append(
        {
            "name": name,
            "was": _word(was),
            "now": _word(was if arguments.dry_run else wanted),
            "switch": device.on is not None,
            "persistent": device.persistent,
        }
    )


def _plan_default(plan: Plan, arguments: argparse.Namespace) -> None:
    key, dry = arguments.key, arguments.dry_run
    value = _VALUES[arguments.value] if key == "backpressure" else str(int(arguments.value))
    default = Default(BACKPRESSURE if key == "backpressure" else STALL_MS)
    default.require(value)
    loaded, next_load = default.loaded, default.next_load

    def told(one: str | None) -> str | int | None:
        return one if one is None else _WORDS[one] if key == "backpressure" else int(one)

    # The file first: where it cannot be written nothing is changed.
    if next_load != value and not arguments.now:
        text = f"echo '{default.line(value)}' >> {default.file}"
        plan.actions.append((text, partial(default.set_next_load, value)))
    if loaded not in (None, value):
        text = f"echo {value} > {default.parameter}"
        plan.actions.append((text, partial(default.set_loaded, value)))
    stays = "until the module is loaded anew" if arguments.now else "and stays so after a reboot"
    changed = f", {stays}" if plan.actions else " already"
    plan.sentences.append(f"The default of {key} is {told(value)}{changed}.")
    if loaded is None:
        plan.sentences.append("It counts from when nodrop's module is loaded; it is not now.")
    plan.default = {
        "loaded_was": told(loaded),
        "loaded_now": None if loaded is None else told(loaded if dry else value),
        "next_load_was": told(next_load),
        "next_load_now": told(next_load if dry or arguments.now else value),
        "file": str(default.file),
    }


def _word(on: bool) -> str:
    return "on" if on else "off"
