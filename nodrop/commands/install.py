# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop install`` and ``nodrop uninstall``: the modules at boot, or the running drivers."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from nodrop import proc
from nodrop.columns import clean_lines
from nodrop.commands import common
from nodrop.errors import NodropError, UsageError
from nodrop.host.installation import Installation
from nodrop.livepatch import Livepatch

BUILD_TIMEOUT_S = 600.0
LIVE_TIMEOUT_S = 60.0
"""How long the livepatch may take to go in or out."""
_KMOD = Path(__file__).resolve().parents[2] / "kmod"


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the arguments of both commands."""
    add = commands.add_parser(
        "install",
        description="Install nodrop's modules for the running kernel: they are loaded instead of "
        "its own from the next time on. Or, by --live, patch the running drivers with all sessions "
        "open, until the next boot. docs/livepatch.md says what is dangerous.",
    )
    source = add.add_mutually_exclusive_group()
    source.add_argument("--source", type=Path, metavar="DIR", help="the running kernel's source")
    source.add_argument(
        "--built", type=Path, metavar="DIR", help="where the livepatch was built (with --live)"
    )
    add.add_argument("--kernel", metavar="RELEASE", help="another kernel, or all of them: all")
    remove = commands.add_parser(
        "uninstall",
        description="Remove nodrop's modules, so that every kernel loads its own. Or, by --live, "
        "take the livepatch out of the running kernel, with all sessions open.",
    )
    for parser, name in ((add, "install"), (remove, "uninstall")):
        parser.add_argument("--live", action="store_true", help="the running drivers, at once")
        parser.add_argument("--dry-run", action="store_true", help="say what would be done")
        parser.add_argument(
            "--timeout",
            type=common.seconds,
            metavar="S",
            help=f"until every task runs it, or none, seconds ({LIVE_TIMEOUT_S:g}; with --live)",
        )
        parser.set_defaults(run=run, name=name)
    remove.set_defaults(source=None, built=None, kernel=None)


def run(arguments: argparse.Namespace) -> int:
    """Run one of the commands."""
    installing = arguments.name == "install"
    if arguments.live:
        if arguments.kernel:
            raise UsageError("--live is for the kernel that runs.", "Leave --kernel out.")
        arguments.timeout = arguments.timeout or LIVE_TIMEOUT_S
        return (_patch if installing else _restore)(arguments)
    if arguments.built:
        raise UsageError("--built is for the livepatch.", "Say --live as well.")
    if arguments.timeout:
        raise UsageError("--timeout is for the livepatch.", "Say --live as well.")
    place = Installation(release=arguments.kernel)
    steps = place.to_install(arguments.source) if installing else place.to_uninstall()
    actions = place.told(steps)
    if arguments.dry_run or not actions:
        sentences = [] if actions else ["Nothing of nodrop is installed."]
        return _tell(arguments, place, actions, sentences, changed=False)
    _require_root("install or remove modules")
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
            "live": arguments.live,
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
    elif not arguments.live:
        whose = {"stock": "the kernel's own", "live": "the kernel's own, patched"}
        loaded = place.loaded
        now = f"{whose.get(loaded, loaded)} tun" if loaded else "no tun module"
        sentences = [*sentences, f"In memory now: {now}."]
    print(clean_lines("\n".join(sentences)))
    return 0


def _patch(arguments: argparse.Namespace) -> int:
    """Make the running drivers lossless."""
    patch, place = Livepatch(), Installation()
    patch.require()
    if patch.enabled and patch.settled:
        sentences = ["The running drivers are lossless already."]
        return _tell(arguments, place, [], sentences, changed=False)
    kernel, timeout = place.kernel, f"{arguments.timeout:g} s"
    actions = [
        "insmod nodrop.ko",
        "insmod nodrop_live.ko",
        f"wait up to {timeout} until all tasks run it, or take it out again",
    ]
    if not arguments.built:
        build_it = (
            f"build nodrop.ko and nodrop_live.ko for kernel {kernel}, and check that they fit"
        )
        actions.insert(0, build_it)
    if arguments.dry_run:
        return _tell(arguments, place, actions, [], changed=False)
    _require_root("change the running drivers")
    with common.progress(arguments) as progress, ExitStack() as stack:
        folder = arguments.built
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nodrop-live-")))
            with progress.step(f"Build the livepatch for {kernel}") as step:
                build(kernel, arguments.source, folder, step.update)
        with progress.step("Patch the running drivers") as step:
            patch.enter(folder, arguments.timeout, step.update)
    end = "The running drivers are lossless until the next boot, or 'nodrop uninstall --live'."
    return _tell(arguments, place, actions, [end], changed=True)


def _restore(arguments: argparse.Namespace) -> int:
    """Make the running drivers stock again."""
    patch, place = Livepatch(), Installation()
    if not patch.left:
        sentences = ["There is no livepatch in the running kernel."]
        return _tell(arguments, place, [], sentences, changed=False)
    actions = [
        "disable the livepatch nodrop_live",
        f"wait up to {arguments.timeout:g} s until no task runs it",
        "rmmod nodrop_live",
        "rmmod nodrop, when nothing else uses it",
    ]
    if arguments.dry_run:
        return _tell(arguments, place, actions, [], changed=False)
    _require_root("change the running drivers")
    with common.progress(arguments) as progress, progress.step("Restore the drivers") as step:
        patch.leave(arguments.timeout, step.update)
    sentences = ["The running drivers are stock again."]
    return _tell(arguments, place, actions, sentences, changed=True)


def build(kernel: str, source: Path | None, out: Path, tell: Callable[[str], None]) -> None:
    """Build the livepatch for an installed kernel and check that it fits.

    Args:
        kernel: its release.
        source: its source; None: what kmod/source finds.
        out: an empty folder; gets the modules.
        tell: called with each line of output.

    Raises:
        NodropError: it cannot be built, or does not fit; the text says why.
    """
    if source is None:
        if not (_KMOD / "source").exists():
            raise NodropError("The kernel's source is not known.", "Give it by --source DIR.")
        source = out / "source"
        _make([_KMOD / "source", kernel, source], tell)
    modules = Path("/lib/modules") / kernel
    words = [f"KSRC={source}", f"KOBJ={modules / 'build'}", f"LIVE={modules / 'kernel'}"]
    _make(["make", "-C", _KMOD, *words, f"OUT={out}"], tell)


def _make(argv: list[str | Path], tell: Callable[[str], None]) -> None:
    done = proc.run(argv, timeout=BUILD_TIMEOUT_S, on_line=tell)
    if done.status != 0:
        said = [line for line in done.output.splitlines() if line.startswith("nodrop: ")]
        reason = "\n".join(said) or proc.tail(done.output, 12)
        raise NodropError("The livepatch cannot be built; the drivers are what they were.", reason)


def _require_root(what: str) -> None:
    if os.geteuid() != 0:
        raise NodropError(f"Only root can {what}.", "Run this as root.")
