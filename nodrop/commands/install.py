# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop install`` and ``nodrop uninstall``: the modules that kernels load."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from nodrop.columns import clean_lines
from nodrop.commands import common
from nodrop.host.installation import Installation


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the arguments of both commands."""
    add = commands.add_parser(
        "install",
        description="Install nodrop's modules for the running kernel: they are loaded instead of "
        "its own from the next time on. 'nodrop livepatch load' patches the drivers that run.",
    )
    add.add_argument("--source", type=Path, metavar="DIR", help="the kernel's source")
    add.add_argument("--kernel", metavar="RELEASE", help="another kernel, or all of them: all")
    remove = commands.add_parser(
        "uninstall",
        description="Remove nodrop's modules, so that every kernel loads its own.",
    )
    for parser, name in ((add, "install"), (remove, "uninstall")):
        parser.add_argument("--dry-run", action="store_true", help="say what would be done")
        parser.set_defaults(run=run, name=name)
    remove.set_defaults(source=None, kernel=None)


def run(arguments: argparse.Namespace) -> int:
    """Run one of the commands."""
    installing = arguments.name == "install"
    place = Installation(release=arguments.kernel)
    steps = place.to_install(arguments.source) if installing else place.to_uninstall()
    actions = place.told(steps)
    if arguments.dry_run or not actions:
        sentences = [] if actions else ["Nothing of nodrop is installed."]
        return _tell(arguments, place, actions, sentences, changed=False)
    common.require_root("install or remove modules")
    title = f"{arguments.name.capitalize()} the modules"
    with common.progress(arguments) as progress, progress.step(title) as step:
        sentences = place.run(steps, step.update)
    if installing:
        which = (
            "Every kernel with headers" if arguments.kernel == "all" else f"Kernel {place.kernel}"
        )
        sentences.insert(0, f"{which} loads nodrop's modules from now on.")
    else:
        sentences.insert(0, "Every kernel loads its own modules from now on.")
    return _tell(arguments, place, actions, sentences, changed=True)


def _tell(
    arguments: argparse.Namespace,
    place: Installation,
    actions: Sequence[str],
    sentences: Sequence[str],
    *,
    changed: bool,
) -> int:
    """Print what was done or would be, and what is in memory now."""
    if arguments.json:
        told = {
            "dry_run": arguments.dry_run,
            "kernel": place.kernel,
            "changed": changed,
            "actions": list(actions),
            "sentences": list(sentences),
            "installed": place.installed,
            "loaded": place.loaded,
        }
        common.print_json(arguments.name, told)
        return 0
    if arguments.dry_run:
        sentences = [*actions, *sentences]
    else:
        whose = {"stock": "the kernel's own", "live": "the kernel's own, patched"}
        loaded = place.loaded
        now = f"{whose.get(loaded, loaded)} tun" if loaded else "no tun module"
        sentences = [*sentences, f"In memory now: {now}."]
    print(clean_lines("\n".join(sentences)))
    return 0
