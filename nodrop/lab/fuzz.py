# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.lab.fuzz``: fuzzes nodrop's modules in one guest after another.

The corpus and what was found stay in a folder; another run goes on with the corpus.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodrop.errors import FAILED, NodropError
from nodrop.guest.fuzz.state import MARK, State
from nodrop.kernel import ensure_artifacts, ensure_kernel
from nodrop.kernel.covered import ensure_covered
from nodrop.kernel.kconfig import FLAVOURS
from nodrop.lab.findings import Findings
from nodrop.lab.fuzz_guest import GRACE_S, Guests
from nodrop.lab.reached import Module, merge, reached, read_modules
from nodrop.progress import Progress
from nodrop.signals import INTERRUPTED, interrupt_on_signals

GUEST_S = 240.0
"""How long a guest lives; the next one is of another kind, and has fresh memory."""
KINDS = (("--guard-ms", "0"), ("--guard-ms", "20", "--trace"), ("--guard-ms", "0", "--stock-vhost"))
"""Guests in turn. A guard that never trips shows who is stuck; one that trips soon is code, too."""
SUMMARY = "summary.json"
_LAST_S = 5.0
"""Less is not worth another guest."""


@dataclass
class Campaign:
    """A run of the host.

    Attributes:
        states: of the guests so far.
    """

    seed: int
    seconds: float
    flavour: str
    out: Path
    started: float = field(default_factory=time.monotonic)
    states: list[State] = field(default_factory=list)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.started

    def line(self, figures: dict[str, Any], findings: int) -> str:
        """Return a line about how it goes, with the figures of the guest that runs."""
        programs = figures["programs"] + sum(state.programs for state in self.states)
        calls = figures["calls"] + sum(state.calls for state in self.states)
        return (
            f"{self.elapsed_s:.0f} of {self.seconds:.0f} s: {programs} programs, {calls} calls in "
            f"{len(self.states) + 1} guests; now {figures['places']} places, corpus "
            f"{figures['corpus']}; {findings} findings"
        )

    def summary(self, modules: Sequence[Module], findings: Findings) -> dict[str, Any]:
        """Return what was done, reached and found, for JSON; it is also kept."""
        passed = merge(state.places for state in self.states)
        ends = {end for state in self.states for end in state.ended}
        code = {}
        for module in modules:
            found = reached(module, passed.get(module.name, {}))
            code[module.name] = {
                "places": found.places,
                "functions": found.functions,
                "missed": found.missed,
            }
        summary = {
            "seed": self.seed,
            "flavour": self.flavour,
            "seconds": round(self.elapsed_s, 1),
            "guests": len(self.states),
            "programs": sum(state.programs for state in self.states),
            "calls": sum(state.calls for state in self.states),
            "killed": sum(state.killed for state in self.states),
            "held_once": sum(state.unsure for state in self.states),
            "kinds_of_calls": len({end.partition(":")[0] for end in ends}),
            "outcomes": len(ends),
            "corpus": len(list((self.out / "corpus").glob("*.txt"))),
            "code": code,
            "findings": findings.to_json(),
        }
        text = json.dumps(summary, indent=1) + "\n"
        (self.out / SUMMARY).write_text(text, encoding="utf-8")
        return summary


def fuzz(campaign: Campaign, guests: Guests) -> dict[str, Any]:
    """Run guests until the time is over; return the last summary: there is one after each.

    Raises:
        NodropError: a guest cannot be run.
    """
    findings = Findings(campaign.out, guests)
    # What they reached may be elsewhere in other modules.
    shutil.rmtree(campaign.out / "guests", ignore_errors=True)

    def on_line(line: str) -> None:
        if line.startswith(MARK):
            print(campaign.line(json.loads(line.removeprefix(MARK)), len(findings)), flush=True)
        elif line.strip():
            print(f"  {line}", flush=True)

    modules = read_modules(guests.artifacts.modules)
    summary: dict[str, Any] = {}
    while not campaign.states or campaign.seconds - campaign.elapsed_s > _LAST_S:
        number = len(campaign.states)
        seconds = max(min(GUEST_S, campaign.seconds - campaign.elapsed_s), _LAST_S)
        arguments = ["--seed", str(campaign.seed * 1000 + number), "--guest", str(number)]
        arguments += ["--seconds", f"{seconds:.1f}"]
        arguments += KINDS[number % len(KINDS)]
        timeout = seconds + GRACE_S
        outcome = guests.run(arguments, campaign.out, timeout=timeout, on_line=on_line)
        campaign.states.append(outcome.state or State(number, campaign.seed))
        if outcome.finding:
            findings.add(number, outcome.finding)
        summary = campaign.summary(modules, findings)
    return summary


def tell(summary: dict[str, Any]) -> None:
    """Print a summary."""
    print(
        f"{summary['programs']} programs, {summary['calls']} calls of {summary['kinds_of_calls']} "
        f"kinds with {summary['outcomes']} outcomes, {summary['guests']} guests, "
        f"{summary['seconds']:.0f} s; {summary['killed']} programs took too long"
    )
    for name, code in summary["code"].items():
        places, functions = code["places"], code["functions"]
        print(
            f"{name}: {places[0]} of {places[1]} places, {functions[0]} of {functions[1]} "
            f"functions; not: {', '.join(code['missed']) or '-'}"
        )
    for found in summary["findings"]:
        print(f"FOUND {found['kind']}: {found['line']} ({found['times']} times), {found['folder']}")
    if not summary["findings"]:
        print("Nothing was found.")


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


def _replay(arguments: argparse.Namespace, out: Path, guests: Guests) -> int:
    files = [str(path.resolve()) for path in arguments.replay]
    given = ["--seconds", str(arguments.seconds), "--times", str(arguments.times)]
    given += ["--replay", *files]
    timeout = arguments.seconds + GRACE_S
    outcome = guests.run(given, out / "replay", timeout=timeout, on_line=print)
    if not outcome.finding:
        print("Nothing was found.")
        return 0
    of = outcome.finding.of
    where = f" by {files[of]}" if 0 <= of < len(files) else ""
    print(f"FOUND {outcome.finding.kind}{where}: {outcome.finding.line}\n{outcome.finding.text}")
    return FAILED


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
            return _replay(arguments, out, guests)
        campaign = Campaign(arguments.seed, arguments.seconds, arguments.flavour, out)
        summary = fuzz(campaign, guests)
    except NodropError as error:
        print(f"nodrop: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return INTERRUPTED
    tell(summary)
    return FAILED if summary["findings"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
