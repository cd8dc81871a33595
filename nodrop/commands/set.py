# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop set``: set devices by name or pattern, or the default; at once, and kept."""

from __future__ import annotations

import argparse
from functools import partial

from nodrop.commands import common, set_qdisc
from nodrop.commands.set_plan import Plan
from nodrop.errors import UnsupportedError, UsageError
from nodrop.host import netns, settings
from nodrop.host.settings import (
    BACKPRESSURE,
    STALL_MS,
    Default,
    Rules,
    Switch,
    changed,
    matches,
)
from nodrop.proc import join
from nodrop.screen import clean

KEYS = ("backpressure", "qdisc", "stall-ms")
MOST_MS = 10**6
_NUMBERS = {"on": "1", "off": "0"}
_VALUES = {"1": "on", "0": "off"}


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "set",
        usage="nodrop set [--now] [--dry-run] DEV|PATTERN... backpressure on|off|default\n"
        "       nodrop set [--now] [--dry-run] DEV|PATTERN... qdisc fq_codel|off|default\n"
        "       nodrop set [--now] [--dry-run] --default backpressure on|off\n"
        "       nodrop set [--now] [--dry-run] --default stall-ms MS",
        description="Set what TUN and TAP devices do when their ring is full: at once, and "
        "whenever a device of that name appears again. 'default' forgets the kept setting. "
        "stall-ms: milliseconds in which a reader must take what a full ring holds, else the ring "
        "drops; 0: any time. qdisc: what replaces noqueue, which drops; mq if the device may have "
        "several queues.",
    )
    parser.add_argument(
        "operands",
        nargs="*",
        metavar="DEV",
        help="names, or patterns such as 'vnet*'; then the setting and its value",
    )
    parser.add_argument("--default", action="store_true", help="set the default for other devices")
    parser.add_argument("--now", action="store_true", help="set at once, and do not keep it")
    parser.add_argument("--dry-run", action="store_true", help="print the commands only")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    operands = arguments.operands if len(arguments.operands) > 1 else ["", ""]
    *names, arguments.key, arguments.value = operands
    names = list(dict.fromkeys(names))
    _check(arguments, names)
    names = settings.real_names(arguments.netns, names)
    plan = Plan()
    if arguments.key == "qdisc":
        set_qdisc.fill(plan, names, arguments)
    elif names:
        _plan_devices(plan, names, arguments)
    else:
        _plan_default(plan, arguments)
    if not arguments.dry_run:
        plan.do()
    if arguments.json:
        data = {
            "dry_run": arguments.dry_run,
            "netns": arguments.netns,
            "key": arguments.key,
            "devices": plan.devices,
            "kept": plan.kept,
            "default": plan.default,
            "actions": [text for text, _ in plan.actions],
        }
        common.print_json("set", data)
    elif arguments.dry_run:
        print("\n".join([text for text, _ in plan.actions] or ["Nothing to do."]))
    else:
        print("\n".join(map(clean, plan.sentences)))
    return 0


def _check(arguments: argparse.Namespace, names: list[str]) -> None:
    """Raise UsageError for arguments that do not belong together."""
    key, value, default = arguments.key, arguments.value, arguments.default
    if key not in KEYS:
        raise UsageError(
            f"The last two words must be a setting and its value: '{key}' is not a setting."
            if key
            else "The setting and its value are missing.",
            f"Use: nodrop set DEV... {KEYS[0]} on|off|default (options first or last).",
        )
    if not names and not default:
        raise UsageError("Name devices, or use --default.", "See 'nodrop set --help'.")
    if names and default:
        raise UsageError("--default and device names cannot be combined.", "Use one of them.")
    for name in names:
        if name in settings.NO_NAMES:
            also = " To set the others' default: nodrop set --default." if name == "default" else ""
            raise UsageError(f"No device can be named '{name}'.", f"'*' matches all devices.{also}")
    if default and arguments.netns is not None:
        raise UsageError("The default applies to all network namespaces.", "Run it without -n.")
    if names and arguments.netns is not None and not arguments.now:
        raise UsageError(
            "Settings are only kept for devices of the machine's own network namespace.",
            "Use --now to set the device without keeping the setting.",
        )
    if key == "stall-ms":
        if names:
            raise UsageError(
                "stall-ms is one setting for all TUN and TAP devices: guard_ms of module nodrop.",
                "nodrop set --default stall-ms MS",
            )
        if not (value.isascii() and value.isdigit() and len(value) < 8 and int(value) <= MOST_MS):
            raise UsageError(f"stall-ms must be a whole number of milliseconds, at most {MOST_MS}.")
    elif key == "qdisc":
        set_qdisc.check(arguments)
    elif value not in ("on", "off", *(["default"] if names and not arguments.now else [])):
        known = "on, off or default" if names and not arguments.now else "on or off"
        raise UsageError(f"backpressure must be {known}, not '{value}'.")


def _plan_devices(plan: Plan, names: list[str], arguments: argparse.Namespace) -> None:
    """Plan the rules and devices, and check all devices before the first is set."""
    now = arguments.now
    on = None if arguments.value == "default" else arguments.value == "on"
    if not now:
        _plan_rules(plan, names, on, arguments)
    selected = plan.select(names, settings.device_names(arguments.netns), now=now)
    devices = settings.read_switches(arguments.netns, selected)
    for device in devices:
        if on is not None and (now or device.asked):
            settings.require_switch(device, on, Default(BACKPRESSURE))
    for device in devices:
        _plan_device(plan, device, on, arguments)


def _plan_rules(
    plan: Plan, names: list[str], on: bool | None, arguments: argparse.Namespace
) -> None:
    rules = Rules()
    before = rules.read()
    kept = changed(before, names, on)
    if on is not None:
        rules.require()
        if not rules.loaded:
            plan.sentences.append("nodrop's driver is not loaded; settings apply when it is.")
    if list(kept.items()) != list(before.items()):
        text = settings.write_command(rules.file, rules.lines(kept))
        plan.actions.append((text, partial(rules.keep, names, on)))
    for name in names:
        if on is not None:
            plan.sentences.append(
                f"Kept for {name}: backpressure is {_value(on)} whenever such a device appears."
            )
            continue
        others = [pattern for pattern in kept if matches(pattern, name)]
        more = f"; the setting of {others[-1]} still applies to it" if others else ""
        plan.sentences.append(f"No setting is kept for {name}{more}.")
    shown = before if arguments.dry_run else kept
    plan.kept = {name: _value(setting) for name, setting in shown.items()}


def _plan_device(
    plan: Plan, device: Switch, on: bool | None, arguments: argparse.Namespace
) -> None:
    name, was, where = device.name, bool(device.on), arguments.netns
    wanted = was if on is None else on
    until = "it is deleted" if device.persistent else "its program ends"
    if on is not None and device.on is not None:
        # Set it even if it has this value already, so that it stops following the default.
        command = join("ethtool", "--set-priv-flags", name, settings.FLAG, _value(wanted))
        text = netns.prefix(where) + command
        plan.actions.append((text, partial(settings.turn, where, name, wanted)))
        stays = f", until {until}" if arguments.now else ""
        plan.sentences.append(f"Backpressure of {name} is {_value(wanted)}{stays}.")
    elif device.on is not None:
        plan.sentences.append(f"Backpressure of {name} stays {_value(was)} until {until}.")
    elif on is not None:
        wanted = was
        plan.sentences.append(f"{name} uses the stock driver, which drops.")
    plan.devices.append(
        {
            "name": name,
            "was": _value(was),
            "now": _value(was if arguments.dry_run else wanted),
            "switch": device.on is not None,
            "persistent": device.persistent,
        }
    )


def _plan_default(plan: Plan, arguments: argparse.Namespace) -> None:
    key, dry = arguments.key, arguments.dry_run
    value = _NUMBERS[arguments.value] if key == "backpressure" else str(int(arguments.value))
    default = Default(BACKPRESSURE if key == "backpressure" else STALL_MS)
    default.require(value)
    loaded, next_load = default.loaded, default.next_load
    if arguments.now and loaded is None:
        raise UnsupportedError("nodrop's module is not loaded.", "Run it without --now.")

    def shown(number: str | None) -> str | int | None:
        if number is None:
            return None
        return _VALUES[number] if key == "backpressure" else int(number)

    # The file first: if it cannot be written, nothing is changed.
    if next_load != value and not arguments.now:
        text = settings.write_command(default.file, default.lines(value))
        plan.actions.append((text, partial(default.set_next_load, value)))
    if loaded not in (None, value):
        text = f"echo {value} > {default.parameter}"
        plan.actions.append((text, partial(default.set_loaded, value)))
    stays = "until the module is reloaded" if arguments.now else "and stays so after a reboot"
    when = f", {stays}" if plan.actions else " already"
    plan.sentences.append(f"The default of {key} is {shown(value)}{when}.")
    if loaded is None:
        plan.sentences.append("nodrop's module is not loaded; the default takes effect when it is.")
    plan.default = {
        "loaded_was": shown(loaded),
        "loaded_now": None if loaded is None else shown(loaded if dry else value),
        "next_load_was": shown(next_load),
        "next_load_now": shown(next_load if dry or arguments.now else value),
        "file": str(default.file),
    }


def _value(on: bool) -> str:
    return "on" if on else "off"
