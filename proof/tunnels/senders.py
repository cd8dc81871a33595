# SPDX-License-Identifier: GPL-2.0-only
"""``python -m proof.tunnels.senders [--boots N] --out DIR``: two senders at once, in cycles.

Each row is one boot of the switchable kernel in user-mode Linux, in which compare.py switches the
parts of the series on and off. Use an idle machine with two CPUs. The rows go to
DIR/senders.jsonl, the table to DIR/senders.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from lab import uml
from lab.kernel import Kernel, ensure_artifacts, ensure_kernel
from lab.kernel.kconfig import PATCHES
from lab.kernel.patched import REPOSITORY, fingerprint
from nodrop import proc
from nodrop.errors import NodropError
from nodrop.progress import Progress
from nodrop.signals import guarded

FLAVOUR = "tunnel-ab"
TIMEOUT_S = 120.0
_KINDS = ("vxlan", "geneve", "gre", "ipip", "sit")


class Cell(NamedTuple):
    """What one row measures.

    Attributes:
        features: parts that are switched (compare.py).
        shared: both senders use one route.
    """

    kind: str
    features: str
    shared: bool


CELLS = (
    *(Cell(kind, "references", shared) for kind in _KINDS for shared in (False, True)),
    *(Cell("gre", "references,id", shared) for shared in (False, True)),
    Cell("vxlan", "nothing", True),
)
"""The last one switches nothing: its ratio shows the error."""


def measure(kernel: Kernel, cell: Cell, out: Path, progress: Progress) -> dict[str, Any]:
    """Boot a guest and measure a cell in it.

    Raises:
        NodropError: the measurement failed.
    """
    argv = ["python3", "-m", "proof.tunnels.compare", "--type", cell.kind, "--cpus", "0,1"]
    argv += ["--features", cell.features, *(["--shared"] if cell.shared else [])]
    run = uml.run(
        kernel,
        argv,
        out=out,
        artifacts=ensure_artifacts(kernel, progress),
        timeout=TIMEOUT_S,
        env={"PYTHONPATH": str(REPOSITORY)},
    )
    if run.status or run.splats:
        raise NodropError(f"The measurement of {cell} failed.", proc.tail(run.output or run.log))
    row: dict[str, Any] = json.loads(run.output)
    if row["refused"]:
        raise NodropError(f"{row['refused']} packets of {cell} did not leave.")
    return row


def _cpu() -> str:
    """Return the model of this machine's CPU."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    found = (line.partition(": ")[2] for line in lines if line.startswith("model name"))
    return next(found, "")


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the medians of all boots, and the lowest and highest ratio, in Markdown.

    A boot's ratio is the median of its pairs' ratios.
    """
    found: dict[Cell, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(Cell(row["type"], row["features"], row["shared"]), []).append(row)
    lines = ["| tunnel | switched | route | off | on | ratio |", "|---|---|---|---:|---:|---|"]
    for cell, boots in found.items():
        off, on, ratio = (median(one[name] for one in boots) for name in ("off", "on", "ratio"))
        ratios = sorted(one["ratio"] for one in boots)
        words = [cell.kind, cell.features, "shared" if cell.shared else "own"]
        words += [f"{off:.0f}", f"{on:.0f}", f"{ratio:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"]
        lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    """Measure all cells in turn, as often as asked; print and write the table."""
    parser = argparse.ArgumentParser(prog="python -m proof.tunnels.senders", description=__doc__)
    parser.add_argument("--boots", type=int, default=6, metavar="N", help="of each cell (6)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    given = parser.parse_args(argv)
    given.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with Progress() as progress:
        kernel = ensure_kernel(progress, FLAVOUR)
        meta = {
            "source": kernel.package,
            "patches": fingerprint(PATCHES[FLAVOUR]),
            "cpu": _cpu(),
        }
        with (
            (given.out / "senders.jsonl").open("w", encoding="utf-8") as file,
            tempfile.TemporaryDirectory() as guest,
            progress.step("Measure two senders") as shown,
        ):
            file.write(json.dumps(meta) + "\n")
            for boot in range(1, given.boots + 1):
                for cell in CELLS:
                    shown.update(f"boot {boot}, {cell.kind}")
                    row = measure(kernel, cell, Path(guest), progress)
                    rows.append({"boot": boot, **row})
                    file.write(json.dumps(rows[-1]) + "\n")
                    file.flush()
    text = table(rows)
    (given.out / "senders.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(guarded(partial(main, sys.argv[1:])))
