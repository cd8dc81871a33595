# SPDX-License-Identifier: GPL-2.0-only
"""Shared by commands: arguments, the selected devices and namespaces, progress, JSON output."""

from __future__ import annotations

import argparse
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodrop.errors import NodropError, UsageError
from nodrop.host.model import Device, Host
from nodrop.host.read import NAMESPACES_S, build, read
from nodrop.host.settings import replace_file
from nodrop.screen import clean_lines
from nodrop.start import SCHEMA

if TYPE_CHECKING:
    from nodrop.progress import Progress

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_MANY = 100
"""Devices from which on JSON is not indented, which would take ten times as long."""
NO_DEVICE = "There is no TUN, TAP, macvtap, ipvtap or tunnel device here."


def positive_int(text: str) -> int:
    """Parse a whole number of at least 1, for argparse."""
    try:
        value = int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from error
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def seconds_from(least: float, most: float, *, or_zero: bool = False) -> Callable[[str], float]:
    """Return a parser of seconds within bounds, for argparse."""

    def seconds(text: str) -> float:
        try:
            value = float(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds") from error
        if not (least <= value <= most or (or_zero and value == 0)):
            raise argparse.ArgumentTypeError(
                f"must be {'0, or ' if or_zero else ''}from {least:g} to {most:g} seconds"
            )
        return value

    return seconds


seconds = seconds_from(0.05, 600)


def progress(arguments: argparse.Namespace) -> Progress:
    from nodrop.progress import Progress

    return Progress(quiet=arguments.quiet, color=arguments.color)


def print_json(command: str, data: Mapping[str, Any], *, compact: bool = False) -> None:
    """Print one JSON object on stdout: see :func:`json_text`."""
    print(json_text(command, data, compact=compact), flush=compact)


def json_text(command: str, data: Mapping[str, Any], *, compact: bool = False) -> str:
    """Return one JSON object.

    Args:
        data: the other keys; docs/guide.md explains their names.
        compact: on one line, for commands that print several objects.
    """
    fields = {"schema": SCHEMA, "command": command, **data}
    indent = None if compact or len(data.get("devices", ())) >= _MANY else 2
    text = json.dumps(fields, indent=indent, ensure_ascii=False)
    return text if text.isascii() else _NOT_ASCII.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    if "\udc80" <= char <= "\udcff":
        # A byte of a name that is not UTF-8 cannot be in JSON: print it as \xff.
        return rf"\\x{ord(char) - 0xDC00:02x}"
    return json.dumps(char)[1:-1]


def report(
    arguments: argparse.Namespace,
    command: str,
    actions: Sequence[str],
    sentences: Sequence[str],
    **more: Any,
) -> int:
    """Print what was done or would be done, as JSON with more keys; return the exit status."""
    if arguments.json:
        data = {"dry_run": arguments.dry_run, "actions": actions, "sentences": sentences}
        print_json(command, {**data, **more})
    else:
        print(clean_lines("\n".join([*(actions if arguments.dry_run else ()), *sentences])))
    return 0


def write_file(path: Path, content: bytes) -> None:
    """Replace a file atomically, readable by all users.

    Raises:
        NodropError: it cannot be written, or the path is not a regular file. The old file is
            unchanged, and no temporary file is left.
    """
    try:
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            mode = stat.S_IFREG
        if stat.S_ISLNK(mode):
            # The owner of the link could choose which file root overwrites.
            raise NodropError(f"{path} is a symbolic link.", "Name the file itself.")
        if not stat.S_ISREG(mode):
            raise NodropError(f"{path} is not a regular file.", "Name another file.")
        replace_file(path, content)
    except OSError as error:
        raise NodropError(f"Cannot write {path}: {error.strerror}.") from error


def require_root(what: str) -> None:
    """Raise NodropError unless this process is root; ``what``: what only root can do."""
    if os.geteuid() != 0:
        raise NodropError(f"Only root can {what}.", "Run this as root.")


def confirm(text: str) -> None:
    """Print what will happen on stderr, and ask.

    Raises:
        NodropError: the answer is not yes.
        UsageError: nobody can answer.
    """
    if not sys.stdin or not sys.stdin.isatty():
        raise UsageError(text, "Use --yes to confirm that.")
    print(clean_lines(text), "Continue? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise NodropError("Nothing was changed.")


def add_device_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("device", nargs="*", metavar="DEV", help="only these devices, or a pattern")
    parser.add_argument(
        "-A", "--all-namespaces", action="store_true", help="devices of all network namespaces"
    )


def check_namespaces(arguments: argparse.Namespace) -> None:
    if arguments.netns and arguments.all_namespaces:
        raise UsageError("--netns and --all-namespaces cannot be combined.")


def read_host(arguments: argparse.Namespace) -> Host:
    """Read the machine in the selected namespaces.

    Raises:
        NodropError: there is no such namespace, or no permission to enter it.
    """
    check_namespaces(arguments)
    return build(read(arguments.netns, everywhere=arguments.all_namespaces))


def select(host: Host, names: Sequence[str]) -> tuple[Device, ...]:
    """Return the devices of some names and patterns (:meth:`Device.named`); all without names.

    Raises:
        NodropError: there is no such device.
    """
    for name in names:
        if not any(device.named([name]) for device in host.devices):
            known = ", ".join(sorted(device.label for device in host.devices)[:10])
            raise NodropError(
                f"There is no TUN, TAP, macvtap, ipvtap or tunnel device {name} here.",
                f"Devices here: {known}." if known else "'nodrop status -A' lists all devices.",
            )
    return tuple(device for device in host.devices if device.named(names))


def hidden_remark(host: Host) -> str:
    count = host.hidden_processes
    text = f"{count} process{'' if count == 1 else 'es'} could not be inspected, so owners may be "
    return text + ("missing." if host.root else "missing; root sees them.")


def unread_remarks(host: Host) -> list[str]:
    lines = [f"Namespace {name} is not shown: {why}" for name, why in sorted(host.unread.items())]
    if more := len(lines[5:]):
        lines[5:] = [f"{more} more namespaces could not be read; -j lists them."]
    if host.unreached:
        lines.append(
            f"{host.unreached} more namespaces were not read within {NAMESPACES_S:g} s: "
            "-n shows one."
        )
    return lines
