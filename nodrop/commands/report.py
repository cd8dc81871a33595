# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop report``: table, picture and page again, from raw data alone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nodrop.commands import common
from nodrop.errors import NodropError, UsageError

if TYPE_CHECKING:
    from nodrop.report.page import Part


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    parser = commands.add_parser(
        "report",
        description="Make table, picture and page (report.html) again from the raw data of runs, "
        "finished or interrupted.",
    )
    parser.add_argument(
        "directory",
        type=Path,
        nargs="+",
        metavar="DIR",
        help="what 'nodrop bench' or 'demo' made",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="one page of all runs (a single run's: DIR/report.html)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from nodrop.report import files, page

    paths, out = arguments.directory, arguments.out
    if len(paths) > 1 and not out:
        raise UsageError("Where does the page of all runs go?", "Name it with --out FILE.")
    # All are read before the first is written.
    loaded = [files.load(path) for path in paths]
    parts = [page.Part(*common.write_parts(directory)) for directory in loaded]
    if out:
        try:
            page.write(parts, out)
        except OSError as error:
            raise NodropError(f"Cannot write the page to {out}: {error.strerror}.") from error
    out = out or paths[0] / files.PAGE_NAME
    if arguments.json:
        _print_json(parts, paths, out)
    else:
        _print_tables(arguments, parts, paths)
        print(f"Page: {out}")
    return 0


def _print_tables(
    arguments: argparse.Namespace, parts: Sequence[Part], paths: Sequence[Path]
) -> None:
    from nodrop.report import files

    names = [files.MARKDOWN_NAME, files.PLOT_NAME, files.PAGE_NAME]
    for part, path in zip(parts, paths, strict=True):
        common.print_table(arguments, part.directory, part.summaries)
        made = [name for name in names if (path / name).exists()]
        print(f"Made in {path}: {', '.join(made)}")


def _print_json(parts: Sequence[Part], paths: Sequence[Path], out: Path) -> None:
    """Print the summaries: of a single run as it is, of several with their directories."""
    runs = [
        {"directory": str(path), "scenarios": part.summaries}
        for part, path in zip(parts, paths, strict=True)
    ]
    single = parts[0].summaries if len(parts) == 1 else None
    common.print_json(
        "report",
        {"page": str(out), "scenarios": single, "runs": None if single else runs},
    )
