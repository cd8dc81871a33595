# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.bench.series SET [DIR]``: the scenarios of a set, each in a directory.

A set is a file of ``bench/sets``. With the directory of an interrupted series it goes on where
that stopped. Exit status: 0, 1 if a scenario failed or its result is wrong, 130 interrupted.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from nodrop import cli
from nodrop.bench import scenario
from nodrop.commands import common
from nodrop.errors import FAILED, UsageError
from nodrop.report.files import META_NAME
from nodrop.signals import INTERRUPTED, guarded

SETS = scenario.DIRECTORY / "sets"


def load(name: str, directory: Path = SETS) -> list[scenario.Scenario]:
    """Return the scenarios of a set, with the pairs and seconds that it gives them.

    Raises:
        UsageError: there is no such set.
        NodropError: a scenario is broken or missing.
    """
    path = directory / f"{name}.toml"
    try:
        listed = tomllib.loads(path.read_text(encoding="utf-8"))
        return [
            scenario.load(key).with_length(**{"pairs": None, "seconds": None, **entry})
            for key, entry in listed.items()
        ]
    except FileNotFoundError as error:
        raise UsageError(f"There is no set called '{name}'.") from error


def words(chosen: scenario.Scenario, out: Path) -> list[str]:
    """Return the command line that makes one scenario or what is missing of it."""
    if (out / META_NAME).exists():
        return ["bench", "--continue", str(out)]
    length = ["--pairs", str(chosen.pairs), "--seconds", str(chosen.seconds)]
    return ["bench", chosen.name, *length, "--out", str(out)]


def run(
    chosen: Sequence[scenario.Scenario], out: Path, command: Callable[[list[str]], int] = cli.main
) -> dict[str, int]:
    """Make all scenarios, whatever became of the one before; an interruption ends it.

    Returns:
        the exit status of each that was begun, by its name.
    """
    found = {}
    for one in chosen:
        found[one.name] = command(words(one, out / one.name))
        sys.stdout.flush()
        if found[one.name] == INTERRUPTED:
            break
    return found


def main(argv: Sequence[str]) -> int:
    """Run a set."""
    if not 1 <= len(argv) <= 2:
        raise UsageError("Which set of scenarios?", "python -m nodrop.bench.series SET [DIR]")
    out = Path(argv[1]) if len(argv) > 1 else common.default_out("bench")
    found = run(load(argv[0]), out)
    if INTERRUPTED in found.values():
        again = f"python -m nodrop.bench.series {argv[0]} {out}"
        print(f"Go on with the whole set: {again}", file=sys.stderr)
        return INTERRUPTED
    wrong = [name for name, status in found.items() if status]
    print(f"{len(found)} scenarios in {out}; {', '.join(wrong) or 'none'} failed.")
    return FAILED if wrong else 0


if __name__ == "__main__":
    sys.exit(guarded(partial(main, sys.argv[1:])))
