# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop install`` and ``nodrop uninstall``: nodrop's modules on disk."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nodrop.commands import common
from nodrop.host import modules
from nodrop.host.installation import Installation


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the arguments of both commands."""
    add = commands.add_parser(
        "install",
        description="Build and install nodrop's modules for the running kernel, which loads them "
        "instead of its own from the next load on. 'nodrop livepatch load' patches the running "
        "drivers instead.",
    )
    add.add_argument("--source", type=Path, metavar="DIR", help="source tree of the kernel")
    add.add_argument("--kernel", metavar="RELEASE", help="another kernel, or 'all'")
    remove = commands.add_parser(
        "uninstall",
        description="Remove nodrop's modules, so that every kernel loads its own again.",
    )
    for parser, name in ((add, "install"), (remove, "uninstall")):
        parser.add_argument("--dry-run", action="store_true", help="print the commands only")
        parser.set_defaults(run=run, name=name)
    remove.set_defaults(source=None, kernel=None)


def run(arguments: argparse.Namespace) -> int:
    """Run one of the commands."""
    installing = arguments.name == "install"
    place = Installation(release=arguments.kernel)
    command = place.to_install(arguments.source) if installing else place.to_uninstall()
    actions, sentences = place.dry_run(command) if command else ([], [])
    if arguments.dry_run or not actions:
        sentences = sentences if actions else ["nodrop is not installed."]
        return _report(arguments, place, actions, sentences, changed=False)
    common.require_root("install or remove modules")
    title = f"{arguments.name.capitalize()} the modules"
    with common.progress(arguments) as progress, progress.step(title) as step:
        sentences, interrupted = place.run(command, step.update)
    if installing:
        which = (
            "Every kernel with headers" if arguments.kernel == "all" else f"Kernel {place.kernel}"
        )
        sentences.insert(0, f"{which} loads nodrop's modules from now on.")
    else:
        sentences.insert(0, "Every kernel loads its own modules from now on.")
    _report(arguments, place, actions, sentences, changed=True)
    if interrupted:
        sys.stdout.flush()
        raise KeyboardInterrupt
    return 0


def _report(
    arguments: argparse.Namespace,
    place: Installation,
    actions: Sequence[str],
    sentences: Sequence[str],
    *,
    changed: bool,
) -> int:
    """Print what was done or would be done, and which tun is loaded now."""
    more = {"kernel": place.kernel, "installed": place.installed, "loaded": place.loaded}
    if not (arguments.json or arguments.dry_run):
        sentences = [*sentences, modules.loaded_now(place.loaded)]
    return common.report(arguments, arguments.name, actions, sentences, changed=changed, **more)
