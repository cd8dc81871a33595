# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop livepatch load`` and ``unload``: patch the running drivers, and undo that."""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

from nodrop.commands import common
from nodrop.errors import NodropError
from nodrop.host import modules, settings
from nodrop.host.livepatch import Livepatch, build
from nodrop.host.settings import STALL_MS, Default, Rules, applied

TIMEOUT_S = 60.0
"""Default for --timeout: seconds for the livepatch's transition, in either direction."""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the arguments of the command and of its subcommands."""
    both = commands.add_parser(
        "livepatch",
        description="Patch the running tun and vhost_net drivers until the next boot, or undo "
        "that; all sessions stay open. docs/livepatch.md describes the dangers.",
    )
    below = both.add_subparsers(required=True, metavar="load|unload", dest="action")
    load = below.add_parser("load", description="Add flow control to the running drivers.")
    source = load.add_mutually_exclusive_group()
    source.add_argument("--source", type=Path, metavar="DIR", help="source tree of the kernel")
    source.add_argument("--built", type=Path, metavar="DIR", help="directory of a built livepatch")
    unload = below.add_parser("unload", description="Return the running drivers to stock.")
    for parser, run in ((load, _load), (unload, _unload)):
        parser.add_argument("--dry-run", action="store_true", help="print the steps only")
        parser.add_argument(
            "--timeout",
            type=common.seconds,
            default=TIMEOUT_S,
            metavar="S",
            help=f"seconds that the transition may take ({TIMEOUT_S:g})",
        )
        parser.set_defaults(run=run)


def _report(
    arguments: argparse.Namespace, actions: list[str], sentences: list[str], *, changed: bool
) -> int:
    """Print what was done or would be done."""
    more = {
        "action": arguments.action,
        "kernel": os.uname().release,
        "loaded": modules.driver(Path("/")),
    }
    return common.report(arguments, "livepatch", actions, sentences, changed=changed, **more)


def _load(arguments: argparse.Namespace) -> int:
    """Patch the running drivers."""
    patch, kernel = Livepatch(), os.uname().release
    patch.require()
    if patch.enabled and patch.settled:
        return _report(arguments, [], ["The running drivers are already patched."], changed=False)
    actions = [
        "insmod nodrop.ko",
        "insmod nodrop_live.ko",
        f"wait up to {arguments.timeout:g} s until all tasks run it, else unload it again",
    ]
    if not arguments.built:
        build_it = (
            f"build nodrop.ko and nodrop_live.ko for kernel {kernel}, and check that they fit"
        )
        actions.insert(0, build_it)
    if arguments.dry_run:
        return _report(arguments, actions, [], changed=False)
    common.require_root("change the running drivers")
    with common.progress(arguments) as progress, ExitStack() as stack:
        folder = arguments.built
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nodrop-live-")))
            with progress.step(f"Build the livepatch for {kernel}") as step:
                build(kernel, arguments.source, folder, step.update)
        with progress.step("Patch the running drivers") as step:
            stall_ms = Default(STALL_MS).next_load
            parameters = [] if stall_ms == STALL_MS.usual else [f"{STALL_MS.name}={stall_ms}"]
            patch.enter(folder, arguments.timeout, step.update, parameters)
        missed = _apply_rules()
    end = "The running drivers are patched until the next boot or 'nodrop livepatch unload'."
    return _report(arguments, actions, [end, *missed], changed=True)


def _apply_rules() -> list[str]:
    """Apply the kept settings to existing devices.

    Returns:
        A sentence for each device that could not be set.
    """
    missed = []
    try:
        kept = Rules().read()
    except NodropError as error:
        return [f"The kept settings were not applied: {error.message}"]
    for name, tun in settings.device_names(None).items():
        on = applied(kept, name) if tun else None
        if on is None:
            continue
        try:
            settings.turn(None, name, on)
        except NodropError as error:
            missed.append(f"The setting kept for {name} was not applied: {error.message}")
    return missed


def _unload(arguments: argparse.Namespace) -> int:
    """Unload the livepatch."""
    patch = Livepatch()
    if not patch.left:
        return _report(arguments, [], ["nodrop's livepatch is not loaded."], changed=False)
    actions = [
        "disable the livepatch nodrop_live",
        f"wait up to {arguments.timeout:g} s until no task runs it",
        "rmmod nodrop_live",
        "rmmod nodrop, if nothing else uses it",
    ]
    if arguments.dry_run:
        return _report(arguments, actions, [], changed=False)
    common.require_root("change the running drivers")
    with common.progress(arguments) as progress, progress.step("Restore the drivers") as step:
        patch.leave(arguments.timeout, step.update)
    return _report(arguments, actions, ["The running drivers are stock again."], changed=True)
