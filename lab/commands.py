# SPDX-License-Identifier: GPL-2.0-only
"""The lab's own commands: ``nodrop-lab run``, ``build`` and ``test``."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

from lab import machines
from lab.guest import GuestRun, Terminal, results_directory
from lab.kernel import ensure_artifacts, ensure_kernel
from lab.kernel.kconfig import FLAVOURS
from lab.roots import kernel_names
from lab.sources import REPOSITORY
from lab.variant import KNOWN, Variant
from nodrop import screen
from nodrop.commands import common
from nodrop.errors import FAILED, UsageError

KERNELS = (machines.UML, *kernel_names())
NONE = "none"
PARTS = ("linux", "release", "source", "objtree", "build_id", "package")
"""Of a kernel, as printed by ``build``."""
MAX_CPUS = 8
"""CONFIG_NR_CPUS of the lab's kernels, which silently use no more."""
_PLAIN_WIDTH = 1000
"""Columns of a guest whose output goes to no terminal: practically unlimited."""
_SHELL = ("bash", "--noprofile", "--norc", "-i")


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _register_run(commands)
    build = commands.add_parser(
        "build",
        description="Build kernels that the cache lacks, and print where their parts are. For a "
        "Debian kernel, make the root, nodrop's packages and the layers for tests.",
    )
    build.add_argument(
        "kernels",
        nargs="*",
        metavar="KERNEL",
        default=["perf"],
        help=f"flavours ({', '.join(FLAVOURS)}) and Debian kernels ({', '.join(kernel_names())}); "
        "'debian': all of these (perf)",
    )
    build.add_argument("--modules", action="store_true", help="of a flavour: its modules, too")
    build.add_argument(
        "--setup",
        action="append",
        choices=[setup.value for setup in machines.Setup],
        help="of a Debian kernel: only this one",
    )
    build.add_argument("--part", choices=PARTS, help="of a flavour: print only this")
    build.set_defaults(run=build_kernels)
    test = commands.add_parser(
        "test",
        usage="nodrop-lab test [OPTIONS] [NAME] [PYTEST-OPTION ...]",
        description="Run the tests in guests, or those whose names match.",
    )
    test.add_argument("--kernel", metavar="K", choices=KERNELS, default="uml", help="(uml)")
    test.add_argument("--flavour", metavar="F", choices=FLAVOURS, default="debug", help="(debug)")
    test.add_argument("name", nargs="?", default="", help="a program, a case or a test; none: all")
    test.add_argument("options", nargs=argparse.REMAINDER, metavar="PYTEST-OPTION")
    test.set_defaults(run=run_tests)


def _register_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = commands.add_parser(
        "run",
        usage="nodrop-lab run [OPTIONS] [-- COMMAND ...]",
        description="Run a command or a shell in a guest with nodrop's modules and traffic "
        "programs. This machine is not affected. The guest sees its files (uml) and keeps "
        "its own changes to them in memory; only files in $LAB_OUT remain.",
    )
    run.add_argument(
        "--kernel", metavar="K", choices=KERNELS, default="uml", help=f"{', '.join(KERNELS)} (uml)"
    )
    drivers = (*(str(variant) for variant in KNOWN), NONE)
    run.add_argument(
        "--driver",
        metavar="D",
        choices=drivers,
        default="nodrop",
        help=f"{', '.join(drivers)} (nodrop)",
    )
    run.add_argument(
        "--flavour",
        metavar="F",
        choices=FLAVOURS,
        default="perf",
        help=f"of uml: {', '.join(FLAVOURS)} (perf)",
    )
    run.add_argument("--cpus", type=_cpus, default=2, metavar="N", help="CPUs (2)")
    run.add_argument("--memory", type=_memory, default="2G", metavar="SIZE", help="memory (2G)")
    run.add_argument(
        "--timeout", type=common.seconds_from(1, 10**6), metavar="S", help="seconds (no limit)"
    )
    run.add_argument("--out", type=Path, metavar="DIR", help="$LAB_OUT (not kept)")
    run.add_argument("--log", action="store_true", help="print the kernel log at the end")
    run.add_argument("argv", nargs=argparse.REMAINDER, metavar="COMMAND", help="none: a shell")
    run.set_defaults(run=run_guest)


def _cpus(text: str) -> int:
    value = common.positive_int(text)
    if value > MAX_CPUS:
        raise argparse.ArgumentTypeError(f"must be from 1 to {MAX_CPUS}")
    return value


def _memory(text: str) -> str:
    """Parse a size of memory, for argparse; return it in capitals."""
    match = re.fullmatch(r"(\d{1,9})([MG])", text.upper(), re.ASCII)
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size such as 512M or 2G")
    return match[0]


def run_guest(arguments: argparse.Namespace) -> int:
    """Run a command or a shell in a guest; return its exit status, or 1 after a splat."""
    command = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
    if not command:
        if not screen.is_terminal(sys.stdin):
            raise UsageError(
                "A shell needs a terminal, and stdin is not one.",
                "Name a command: nodrop-lab run -- ip link",
            )
        if arguments.json:
            raise UsageError("A shell has no JSON output.", "Leave out -j, or name a command.")
    with ExitStack() as stack:
        out = arguments.out or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="nodrop-lab-"))
        )
        result = _run(arguments, command, out)
    _print_result(arguments, result)
    return result.status or (FAILED if result.splats else 0)


def _run(arguments: argparse.Namespace, command: Sequence[str], out: Path) -> GuestRun:
    driver = None if arguments.driver == NONE else Variant(arguments.driver)
    results_directory(out)
    with common.progress(arguments) as progress:
        release, boot = machines.bootable(arguments.kernel, driver, arguments.flavour, progress)
    argv = list(command or _SHELL)
    if driver:
        python = sys.executable if arguments.kernel == machines.UML else "python3"
        argv = [python, "-m", "guestlib.drivers", str(driver), *argv]
    if not command and not arguments.quiet:
        modules = f"with {driver}'s modules" if driver else "without modules of tun"
        print(f"Linux {release} {modules}. Leave with 'exit'; Ctrl-] kills it.", file=sys.stderr)

    def on_line(line: str) -> None:
        if command and not arguments.json:
            print(line, flush=True)

    env = _terminal_environment(arguments, shell=not command)
    with nullcontext() if command else Terminal() as terminal:
        result: GuestRun = boot(
            argv,
            out=out,
            cpus=arguments.cpus,
            memory=arguments.memory,
            timeout=arguments.timeout,
            env={"PYTHONPATH": str(REPOSITORY), "PS1": r"lab:\w\$ ", **env},
            on_line=on_line,
            terminal=terminal,
        )
    return result


def _terminal_environment(arguments: argparse.Namespace, *, shell: bool) -> dict[str, str]:
    """Return the environment with which a guest's command formats its output as it would here.

    In the guest it always has a terminal, whose size is known only for a shell.
    """
    to_terminal = screen.is_terminal(sys.stdout) and not arguments.json
    choice, term = arguments.color, os.environ.get("TERM", "dumb")
    colored = choice == "always" or (to_terminal and screen.colored(choice, sys.stdout))
    if colored and term == "dumb":
        term = "linux"
    env = {"TERM": term if to_terminal or colored else "dumb"}
    if not colored:
        env["NO_COLOR"] = "1"
    if not shell:
        width = screen.terminal_width(sys.stdout) if to_terminal else _PLAIN_WIDTH
        env["COLUMNS"] = str(width)
    return env


def _print_result(arguments: argparse.Namespace, result: GuestRun) -> None:
    if arguments.json:
        data: dict[str, Any] = {
            "kernel": arguments.kernel,
            "driver": arguments.driver,
            "status": result.status,
            "duration_s": round(result.seconds, 3),
            "output": result.output,
            "splats": [{"kind": splat.kind, "text": splat.text} for splat in result.splats],
            "foreign": [{"kind": splat.kind, "text": splat.text} for splat in result.foreign],
            "log": result.log if arguments.log else None,
        }
        common.print_json("run", data)
        return
    if arguments.log:
        print(result.log, file=sys.stderr)
    for splat in result.foreign:
        print(f"Kernel splat, not about nodrop ({splat.kind}): {splat.line}", file=sys.stderr)
    for splat in result.splats:
        print(f"Kernel splat ({splat.kind}):\n{splat.text}", file=sys.stderr)


def refuse_json(arguments: argparse.Namespace) -> None:
    """Refuse ``-j`` of a command whose output is for people.

    Raises:
        UsageError: it was given.
    """
    if arguments.json:
        raise UsageError("This command has no JSON output.", "Leave out -j.")


def build_kernels(arguments: argparse.Namespace) -> int:
    refuse_json(arguments)
    given = set(arguments.kernels)
    debian = [name for name in kernel_names() if given & {name, "debian"}]
    flavours = given - {*kernel_names(), "debian"}
    parts: dict[str, dict[str, str]] = {}
    with common.progress(arguments) as progress:
        for name in sorted(flavours):
            kernel = ensure_kernel(progress, name)
            if arguments.modules:
                ensure_artifacts(kernel, progress)
            parts[name] = {part: str(getattr(kernel, part)) for part in PARTS}
        packages = machines.ensure_packages(progress) if debian else ()
        for name in debian:
            for setup in map(machines.Setup, arguments.setup or machines.setups(name)):
                machines.ensure_machine(name, setup, packages, progress)
    for kernel_parts in parts.values():
        for part, value in kernel_parts.items():
            if arguments.part is None:
                print(f"{part}: {value}")
            elif part == arguments.part:
                print(value)
    return 0


def run_tests(arguments: argparse.Namespace) -> int:
    """Replace this process by pytest."""
    refuse_json(arguments)
    folder, env = "tests/guest", {"LAB_TEST_FLAVOUR": arguments.flavour}
    if arguments.kernel != machines.UML:
        folder, env = "tests/kernels", {"LAB_TEST_KERNELS": arguments.kernel}
    argv = [sys.executable, "-m", "pytest", folder, *arguments.options]
    if arguments.name:
        argv += ["-k", arguments.name]
    os.chdir(REPOSITORY)
    os.execve(sys.executable, argv, os.environ | env)
