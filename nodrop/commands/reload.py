# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop reload``: let the running kernel use the modules on disk."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from nodrop.commands import common
from nodrop.errors import NodropError, UnsupportedError, UsageError
from nodrop.host import modules, procfs, reload
from nodrop.screen import clean

ROOT = Path("/")


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "reload",
        description="Replace the loaded modules by those on disk, after nodrop was installed, "
        "upgraded or removed: stop the services that have devices open, unload, load, and start "
        "the services again, also if something fails. Their sessions end. It continues if the "
        "session that runs it ends.",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="print the commands only")
    for name in ("stop", "start"):
        text = f"shell command that {name}s programs that are not services of systemd"
        parser.add_argument(f"--{name}", metavar="COMMAND", default="", help=text)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if bool(arguments.stop) != bool(arguments.start):
        raise UsageError("--stop and --start belong together.", "Give both.")
    plan = reload.plan(ROOT, arguments.stop, arguments.start)
    if plan is None:
        return _report(arguments, [], [], [_nothing_to_do()])
    ends = plan.ends
    if arguments.dry_run:
        plan.require()
        return _report(arguments, plan.lines(), ends, [_ending(ends)])
    common.require_root("reload modules")
    if not procfs.capable(procfs.CAP_SYS_MODULE):
        raise UnsupportedError(
            "This container may not unload modules (CAP_SYS_MODULE).", "Run this on its host."
        )
    plan.require()
    if not arguments.yes:
        common.confirm(_ending(ends))
    done, log, interrupted = reload.run(plan.script(ROOT), _print(arguments), ROOT)
    if not done:
        raise NodropError(
            "The modules were not all replaced, or a service does not run.",
            "\n".join(
                [*log[-8:], f"The log: /{reload.LOG}. 'nodrop doctor' shows what is loaded."]
            ),
        )
    if reload.plan(ROOT):
        raise NodropError(
            "The loaded modules are not those on disk, or the built-in tun still has devices.",
            "'nodrop doctor' shows which; 'dmesg' shows why the kernel refused modules.",
        )
    _report(arguments, plan.lines(), ends, [], changed=True)
    if interrupted:
        sys.stdout.flush()
        raise KeyboardInterrupt
    return 0


def _nothing_to_do() -> str:
    """Return why.

    Raises:
        NodropError: nodrop's sources are on this machine, but there are no modules for the running
            kernel. Without sources, nodrop was removed, and that is done.
    """
    release = os.uname().release
    if modules.installed(ROOT, release):
        return "The loaded modules are those on disk."
    missing = f"nodrop is not installed for the running kernel, {release}."
    if modules.sources(ROOT):
        raise NodropError(missing, "'nodrop doctor' shows why; a newer kernel may need a reboot.")
    return missing


def _ending(ends: list[str]) -> str:
    return f"Sessions end of: {', '.join(ends)}." if ends else "No program has a device open."


def _print(arguments: argparse.Namespace) -> Callable[[str], None]:
    def show(line: str) -> None:
        if not arguments.quiet:
            print(clean(line), file=sys.stderr)

    return show


def _report(
    arguments: argparse.Namespace,
    actions: list[str],
    ends: list[str],
    sentences: list[str],
    *,
    changed: bool = False,
) -> int:
    loaded = modules.driver(ROOT)
    if not arguments.json and not arguments.dry_run:
        sentences = [*sentences, modules.loaded_now(loaded)]
    return common.report(
        arguments, "reload", actions, sentences, ends=ends, changed=changed, loaded=loaded
    )
