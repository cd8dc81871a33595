# SPDX-License-Identifier: GPL-2.0-only
"""``python -m tunnels.measure instructions|cycles --out DIR``: the cost of a tunnel's packets.

``instructions``: boots an x86 kernel without the series, one with it, and one with a switch for
each of its parts, in QEMU, which counts instructions, so neither the host's speed nor its load
matters.

``cycles``: two senders at once in User-Mode Linux, with parts of the series switched off and on in
one kernel. Use an idle machine with two CPUs.

In DIR, KERNEL.jsonl or cycles.jsonl has the rows (tunnels/meter.py) after one row about the
measurement, and KIND.md the table of all rows in DIR.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from lab import qemu, uml
from lab.guest import GuestRun
from lab.kernel import ensure_kernel
from lab.kernel.kconfig import FLAVOURS
from lab.kernel.source import ensure_source, fingerprint
from lab.sources import REPOSITORY
from nodrop import proc
from nodrop.errors import NodropError, guarded
from nodrop.progress import Progress
from tunnels import kernels
from tunnels.links import KINDS
from tunnels.meter import PARTS, VARIANTS, Row, parts

FLAVOUR = "tunnel-ab"
TIMEOUT_S = 120.0
"""Of a guest in User-Mode Linux or with KVM; multiplied for emulation."""
ROUTES = ("own", "shared")
_TWO_SENDERS = ("vxlan", "geneve", "gre", "ipip", "sit")
CELLS = (
    *product(_TWO_SENDERS, ("references",), ROUTES),
    *product(("gre",), ("references,id",), ROUTES),
    ("vxlan", "nothing", "shared"),
)
"""Tunnel, switched parts and route; the last one switches nothing: its ratio shows the error."""


class Guest(NamedTuple):
    """A guest to boot for a measurement.

    Attributes:
        file: name of the file that its rows go to.
        title: for the progress.
        arguments: of tunnels.meter.
        fields: to add to each of its rows.
        modules: directory of kmeter.ko.
        boot: the rest of lab.uml.run() or lab.qemu.run().
        about: kernel and machine.
    """

    file: str
    title: str
    arguments: Sequence[str]
    fields: Mapping[str, Any]
    modules: Path
    boot: Callable[..., GuestRun]
    about: Mapping[str, str]


def instructions(options: argparse.Namespace, progress: Progress) -> Iterator[Guest]:
    """Yield one guest for each kernel."""
    program = proc.require("qemu-system-x86_64", "qemu-system-x86")
    version = proc.run([program, "--version"], timeout=TIMEOUT_S).output.splitlines()[0]
    for name in options.kernel or kernels.PATCHES:
        kernel = kernels.ensure_x86(name, progress)
        share = [REPOSITORY, kernel.files]
        about = {
            "source": ensure_source(progress).package,
            "patches": fingerprint(kernels.PATCHES[name]),
            "qemu": version,
        }
        arguments = ["--variant", name, *(f"--tunnel={tunnel}" for tunnel in options.tunnel or ())]
        boot = partial(qemu.run, kernel, share=share, cpus=1, how=qemu.TCG_ICOUNT)
        title = f"Count instructions ({name})"
        yield Guest(f"{name}.jsonl", title, arguments, {}, kernel.files, boot, about)


def cycles(options: argparse.Namespace, progress: Progress) -> Iterator[Guest]:
    """Yield one guest for each cell, as often as asked."""
    kernel = ensure_kernel(progress, FLAVOUR)
    modules = kernels.ensure_kmeter(kernel, progress)
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = (line.partition(": ")[2] for line in cpuinfo if line.startswith("model name"))
    about = {
        "source": kernel.package,
        "patches": fingerprint(FLAVOURS[FLAVOUR].patches),
        "cpu": next(models, ""),
        "cpus": options.cpus,
    }
    cells: Sequence[tuple[str, str, str]] = CELLS
    if options.tunnel or options.switch or options.route:
        switches = options.switch or ["references"]
        cells = [*product(options.tunnel or _TWO_SENDERS, switches, options.route or ROUTES)]
    boot = partial(uml.run, kernel)
    for number, (tunnel, switched, route) in product(range(1, options.boots + 1), cells):
        arguments = ["--tunnel", tunnel, "--switch", switched, "--cpus", options.cpus]
        arguments += ["--shared"] if route == "shared" else []
        title = f"Measure {tunnel}, {switched}, {route} route, boot {number}"
        yield Guest("cycles.jsonl", title, arguments, {"round": number}, modules, boot, about)


class Measurement(NamedTuple):
    """A kind of measurement and its table.

    Attributes:
        guests: yields the guests to boot.
        labels: fields of a row that name a line of the table.
        variants: the table's columns, and the variant with which each is compared ("": none).
    """

    guests: Callable[[argparse.Namespace, Progress], Iterator[Guest]]
    labels: tuple[str, ...]
    variants: Mapping[str, str]


MEASUREMENTS = {
    "instructions": Measurement(
        instructions,
        ("tunnel",),
        {"clean": "", "series": "clean", **dict.fromkeys(VARIANTS, "none"), "none": ""},
    ),
    "cycles": Measurement(cycles, ("tunnel", "switched", "route"), {"off": "", "on": "off"}),
}


def measure(guest: Guest, options: argparse.Namespace, progress: Progress) -> list[Row]:
    """Boot a guest and return its rows.

    Raises:
        NodropError: the measurement failed.
    """
    slots = [f"--slots={options.slots}"] if options.slots else []
    with tempfile.TemporaryDirectory() as out, progress.step(guest.title) as step:
        run = guest.boot(
            ["python3", "-m", "tunnels.meter", options.kind, *guest.arguments, *slots],
            out=Path(out),
            timeout=TIMEOUT_S,
            env={
                "LAB_MODULES": str(guest.modules),
                "LAB_BIN": "",
                "PYTHONPATH": str(REPOSITORY),
            },
            on_line=step.update,
        )
    if run.status or run.splats:
        raise NodropError(f"{guest.title}: failed.", proc.tail(run.output or run.log))
    return [{**guest.fields, **json.loads(line)} for line in run.output.splitlines()]


def rows(out: Path, kind: str) -> list[Row]:
    """Return the rows of a directory that belong to a kind of measurement."""
    files = ("cycles",) if kind == "cycles" else kernels.PATCHES
    paths = [path for name in files if (path := out / f"{name}.jsonl").exists()]
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    return [json.loads(line) for line in lines]


def table(kind: str, measured: Iterable[Row]) -> str:
    """Return the median cost of each variant, in Markdown.

    In brackets: the ratio of the compared variant's cost to it. If both were measured in pairs, it
    is the median of all boots, each the median of its pairs, with the lowest and the highest boot.
    """
    _, labels, variants = MEASUREMENTS[kind]
    groups: dict[tuple[str, ...], dict[str, list[Row]]] = {}
    for row in measured:
        by_variant = groups.setdefault(tuple(row[label] for label in labels), {})
        by_variant.setdefault(row["variant"], []).append(row)
    lines = [f"| {' | '.join([*labels, *variants])} |"]
    lines.append(f"|{'---|' * len(labels)}{'---:|' * len(variants)}")
    for group, by_variant in groups.items():
        costs = {name: median(row["cost"] for row in same) for name, same in by_variant.items()}
        cells = list(group)
        for variant, base in variants.items():
            cell = f"{costs[variant]:.0f}" if variant in costs else "-"
            ratios = sorted(row["ratio"] for row in by_variant.get(variant, ()) if "ratio" in row)
            if base and ratios:
                cell += f" ({median(ratios):.3f}, {ratios[0]:.3f} to {ratios[-1]:.3f})"
            elif base in costs and variant in costs:
                cell += f" ({costs[base] / costs[variant]:.3f})"
            cells.append(cell)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tunnels.measure", description=__doc__)
    parser.add_argument("kind", choices=tuple(MEASUREMENTS))
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    add = parser.add_argument
    add("--tunnel", choices=tuple(KINDS), action="append", metavar="TYPE", help="only this (all)")
    add("--slots", type=int, metavar="N", help="of 1.6 ms (4000 for cycles, else 40)")
    add("--kernel", choices=kernels.PATCHES, action="append", help="instructions: only of this")
    add("--boots", type=int, default=6, metavar="N", help="cycles: boots of each cell (6)")
    switched = f"cycles: switch only these parts, of {', '.join(PARTS)}"
    add("--switch", type=parts, action="append", metavar="PART,...", help=switched)
    add("--route", choices=ROUTES, action="append", help="cycles: only with this (both)")
    add("--cpus", default="0,1", metavar="N,...", help="cycles: a sender on each (0,1)")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    written: set[str] = set()
    with Progress() as progress:
        for guest in MEASUREMENTS[options.kind].guests(options, progress):
            measured: Sequence[Mapping[str, Any]] = measure(guest, options, progress)
            first = guest.file not in written
            with (options.out / guest.file).open("w" if first else "a", encoding="utf-8") as file:
                for row in [guest.about, *measured] if first else measured:
                    file.write(json.dumps(row) + "\n")
            written.add(guest.file)
    text = table(options.kind, rows(options.out, options.kind))
    (options.out / f"{options.kind}.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(guarded(partial(main, sys.argv[1:])))
