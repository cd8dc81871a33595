# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop set DEV qdisc``: replace noqueue, at once and by the service that keeps it replaced."""

from __future__ import annotations

import argparse
from functools import partial

from nodrop import proc
from nodrop.commands.set_plan import Plan
from nodrop.errors import NodropError, UnsupportedError, UsageError
from nodrop.host import netns, qdisc, settings
from nodrop.host.qdisc import HANDLE, KIND, OPTIONS, SERVICE, WORDS, QdiscRules
from nodrop.host.rtnetlink import Link, Requests
from nodrop.proc import join

SYSTEMCTL_TIMEOUT_S = 60.0


def check(arguments: argparse.Namespace) -> None:
    """Raise UsageError for a wrong value."""
    values = [KIND, "off", *([] if arguments.now else ["default"])]
    if arguments.default:
        raise UsageError(
            "The qdisc of other devices is a setting of the kernel.",
            "sysctl -w net.core.default_qdisc=fq_codel",
        )
    if arguments.value not in values:
        known = f"{', '.join(values[:-1])} or {values[-1]}"
        raise UsageError(f"qdisc must be {known}, not '{arguments.value}'.")


def fill(plan: Plan, names: list[str], arguments: argparse.Namespace) -> None:
    """Plan the file, the service and the devices."""
    on = None if arguments.value == "default" else arguments.value == KIND
    where = arguments.netns
    if not arguments.now:
        _plan_rules(plan, QdiscRules(), names, on, arguments)
    links = {link.name: link for link in _links(where)}
    here = {name: link.kind == "tun" for name, link in links.items()}
    for device in settings.read_switches(where, plan.select(names, here, now=arguments.now)):
        link, ours = links[device.name], False
        if on is False:
            ours = netns.run_inside(where, partial(_ours, link.ifindex))
        kind = link.qdisc
        if on and link.qdisc == "noqueue":
            kind = qdisc.kind_for(link)
        elif ours:
            kind = "noqueue"
        if kind != link.qdisc:
            handle = f"handle {HANDLE >> 16:x}: " if on else ""
            words = WORDS if kind == KIND else kind
            text = f"tc qdisc replace dev {join(link.name)} root {handle}{words}"
            do = partial(_replace, where, link, kind, HANDLE if on else 0)
            plan.actions.append((netns.prefix(where) + text, do))
            plan.sentences.append(f"{link.name} has {kind} now, in place of {link.qdisc}.")
        else:
            plan.sentences.append(f"{link.name} keeps {kind}.")
        if on and device.on is None and not device.asked:
            plan.sentences.append(f"{link.name} uses the stock driver, which drops nevertheless.")
        plan.devices.append(
            {
                "name": link.name,
                "was": link.qdisc,
                "now": link.qdisc if arguments.dry_run else kind,
                "switch": device.on is not None,
                "persistent": device.persistent,
            }
        )


def _plan_rules(
    plan: Plan, file: QdiscRules, names: list[str], on: bool | None, arguments: argparse.Namespace
) -> None:
    if on is not None:
        qdisc.require_here()
    before = file.read()
    kept = settings.changed(before, names, on)
    if list(kept.items()) != list(before.items()):
        text = settings.write_command(file.file, file.lines(kept))
        plan.actions.append((text, partial(file.keep, names, on)))
    enabled, needed = file.service(), any(kept.values())
    if enabled is not None and (enabled != needed or (needed and not file.active())):
        argv = ["systemctl", "enable" if needed else "disable", "--now", SERVICE]
        plan.actions.append((join(*argv), partial(_systemctl, argv)))
    does = {True: f"noqueue is replaced by {KIND}", False: "noqueue stays"}
    for name in names:
        text = f"No qdisc is kept for {name}."
        if on is not None:
            text = f"Kept for {name}: {does[on]} whenever such a device appears."
        plan.sentences.append(text)
    if enabled is None and needed:
        plan.sentences.append(f"{SERVICE} is not installed: run 'nodrop keep-qdiscs' as a service.")
    shown = before if arguments.dry_run else kept
    plan.kept = {name: KIND if value else "off" for name, value in shown.items()}


def _links(where: str | None) -> list[Link]:
    def here() -> list[Link]:
        with Requests() as requests:
            return requests.links()

    return [Link(*link) for link in netns.run_inside(where, here)]


def _ours(index: int) -> bool:
    """Return whether nodrop has set a link's root qdisc."""
    with Requests() as requests:
        return requests.root_handle(index) == HANDLE


def _replace(where: str | None, link: Link, kind: str, handle: int) -> None:
    def there() -> None:
        with Requests() as requests:
            requests.replace_root(link.ifindex, kind, handle, OPTIONS.get(kind))

    try:
        netns.run_inside(where, there)
    except FileNotFoundError as error:
        raise UnsupportedError(
            f"This kernel has no qdisc {kind}.", f"Its configuration or package lacks sch_{kind}."
        ) from error
    except OSError as error:
        raise NodropError(
            f"The qdisc of {link.name} cannot be replaced: {error.strerror}."
        ) from error


def _systemctl(argv: list[str]) -> None:
    done = proc.ask(*argv, timeout=SYSTEMCTL_TIMEOUT_S)
    if done.returncode:
        raise NodropError(f"'{join(*argv)}' failed.", done.stderr.strip())
