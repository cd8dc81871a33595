# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.lab.fuzz``: fuzzes nodrop's modules in one guest after another.

The corpus and what was found stay in a folder; another run goes on with the corpus.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from nodrop.errors import FAILED, NodropError
from nodrop.guest.fuzz.state import MARK
from nodrop.kernel import ensure_artifacts, ensure_kernel
from nodrop.kernel.covered import ensure_covered
from nodrop.kernel.kconfig import FLAVOURS
from nodrop.lab.fuzz_guest import GRACE_S, Found, Guests
from nodrop.progress import Progress
from nodrop.signals import INTERRUPTED, interrupt_on_signals

GUEST_S = 240.0
"""How long a guest lives; the next one is of another kind, and has fresh memory."""
KINDS = (("--guard-ms", "0"), ("--guard-ms", "20", "--trace"), ("--guard-ms", "0", "--stock-vhost"))
"""Guests in turn. A guard that never trips shows who is stuck; one that trips soon is code, too."""
_LAST_S = 5.0
"""Less is not worth another guest."""


def fuzz(guests: Guests, out: Path, *, seed: int, seconds: float) -> list[Found]:
    """Run guests until the time is over; return what they found, each kept in a folder.

    Raises:
        NodropError: a guest cannot be run.
    """
    end = time.monotonic() + seconds
    # What they reached may be elsewhere in other modules.
    shutil.rmtree(out / "guests", ignore_errors=True)
    found: list[Found] = []
    number = 0
    while not number or end - time.monotonic() > _LAST_S:
        for_s = max(min(GUEST_S, end - time.monotonic()), _LAST_S)
        arguments = ["--seed", str(seed * 1000 + number), "--guest", str(number)]
        arguments += ["--seconds", f"{for_s:.1f}", *KINDS[number % len(KINDS)]]
        outcome = guests.run(arguments, out, timeout=for_s + GRACE_S, on_line=_tell)
        if outcome.finding:
            found.append(outcome.finding)
            keep(outcome.finding, out / "findings", number)
        number += 1
    return found


def _tell(line: str) -> None:
    figures = line.startswith(MARK) and json.loads(line.removeprefix(MARK))
    words = ", ".join(f"{name} {value}" for name, value in figures.items()) if figures else line
    if words.strip():
        print(f"  {words}", flush=True)


def keep(found: Found, folder: Path, guest: int) -> None:
    """Write down what was found, and print how to run its program again."""
    place = folder / f"{guest}-{re.sub(r'[^a-z0-9]+', '-', found.kind.lower())}"
    place.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("report.txt", f"{found.kind}: {found.line}\n\n{found.text}\n"),
        ("program.txt", found.program),
        ("recent.txt", found.recent),
    ):
        (place / name).write_text(text, encoding="utf-8")
    print(f"FOUND {found.kind}: {found.line}; see {place}", flush=True)
    print(f"Again: python -m nodrop.lab.fuzz --replay {place / 'program.txt'}", flush=True)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m nodrop.lab.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="how long (60)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the programs (1)")
    parser.add_argument("--flavour", choices=tuple(FLAVOURS), default="kasan")
    parser.add_argument("--out", type=Path, metavar="DIR", help="out/fuzz/FLAVOUR")
    parser.add_argument(
        "--replay", type=Path, nargs="+", default=[], metavar="FILE", help="run these programs only"
    )
    parser.add_argument("--times", type=int, default=20, metavar="N", help="each of these (20)")
    return parser.parse_args(argv)


def _replay(arguments: argparse.Namespace, out: Path, guests: Guests) -> list[Found]:
    given = ["--seconds", str(arguments.seconds), "--times", str(arguments.times), "--replay"]
    given += [str(path.resolve()) for path in arguments.replay]
    timeout = arguments.seconds + GRACE_S
    found = guests.run(given, out / "replay", timeout=timeout, on_line=_tell).finding
    if found:
        print(f"FOUND {found.kind}: {found.line}\n{found.text}\n{found.program}")
    return [found] if found else []


def main(argv: Sequence[str]) -> int:
    """Run it; 1 when something was found."""
    arguments = _arguments(argv)
    interrupt_on_signals()
    out = arguments.out or Path("out/fuzz", arguments.flavour)
    try:
        with Progress() as progress:
            kernel = ensure_kernel(progress, arguments.flavour)
            covered = ensure_covered(kernel, ensure_artifacts(kernel, progress), progress)
        guests = Guests(kernel, covered)
        if arguments.replay:
            found = _replay(arguments, out, guests)
        else:
            found = fuzz(guests, out, seed=arguments.seed, seconds=arguments.seconds)
    except NodropError as error:
        print(f"nodrop: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return INTERRUPTED
    if not found:
        print("Nothing was found.")
    return FAILED if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
