# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.bench.tunnel``: what the parts of the tunnels' series save (docs/tunnels.md).

Raw data are a line for each boot and case; the table is made of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from nodrop import proc
from nodrop.bench import machine, rundir
from nodrop.commands import common
from nodrop.errors import NodropError
from nodrop.guest.plan import RAW_NAME
from nodrop.guest.tunnels.compare import FEATURES
from nodrop.guest.tunnels.kinds import KINDS
from nodrop.kernel import ensure_artifacts, ensure_kernel
from nodrop.lab import uml
from nodrop.progress import Progress
from nodrop.report.files import MARKDOWN_NAME, META_NAME, read_rows
from nodrop.report.stats import interval
from nodrop.signals import guarded

FLAVOUR = "tunnel-ab"
"""The kernel with a switch for each part of the series."""
PARTS = ("noref", ",".join(name for name, bit in FEATURES.items() if bit))
"""What is switched on and off together: the reference alone, and all parts of the series."""
BOOTS = 6
"""What differs from boot to boot, such as where memory is, differs between them."""
SECONDS = 2.4
"""Of each case in each boot, for both variants together."""
SLOT_S = 0.0016
"""How long one variant is measured before the other."""
BOOT_TIMEOUT_S = 60.0
HEAD = "| tunnel | senders | parts | cycles/packet | saved | throughput | 95 % |"


@dataclass(frozen=True)
class Case:
    """What is measured.

    Attributes:
        type: of tunnel, of nodrop.guest.tunnels.kinds.KINDS.
        senders: a CPU each.
        parts: of the series, what is switched on and off; commas between them.
        shared: a PMTU exception makes the senders share one route.
    """

    type: str
    senders: int
    parts: str
    shared: bool = False

    def argv(self, slots: int) -> list[str]:
        """Return the guest's command."""
        cpus = ",".join(str(cpu) for cpu in range(self.senders))
        words = ["--type", self.type, "--features", self.parts]
        words += ["--cpus", cpus, "--slots", str(slots)]
        return words + (["--shared"] if self.shared else [])


def measure(wanted: Sequence[Case], out: Path, progress: Progress) -> None:
    """Measure all cases once in each boot, and leave raw data and metadata in ``out``.

    Raises:
        NodropError: it could not be measured, or ``out`` holds data already.
    """
    rundir.refuse_data(out)
    kernel = ensure_kernel(progress, FLAVOUR)
    artifacts = ensure_artifacts(kernel, progress)
    out.mkdir(parents=True, exist_ok=True)
    slots = max(4, round(SECONDS / SLOT_S) // 4 * 4)
    meta = {
        "schema": 1,
        "time": machine.now_utc(),
        "kernel": machine.describe_kernel(kernel),
        "machine": machine.describe_machine(),
        "source": machine.describe_source(),
        "boots": BOOTS,
        "slots": slots,
    }
    (out / META_NAME).write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
    with (
        progress.step("Measure tunnels", BOOTS * len(wanted)) as step,
        (out / RAW_NAME).open("w", encoding="utf-8") as raw,
        tempfile.TemporaryDirectory(prefix="nodrop-tunnel-") as place,
    ):
        for boot in range(BOOTS):
            for case in wanted:
                run = uml.run(
                    kernel,
                    ["python3", "-m", "nodrop.guest.tunnels.compare", *case.argv(slots)],
                    out=Path(place),
                    artifacts=artifacts,
                    timeout=BOOT_TIMEOUT_S + 2 * SECONDS,
                    urgent=True,
                )
                if run.status or run.splats:
                    told = proc.tail(run.log if run.splats else run.output or run.log)
                    raise NodropError(f"{case.type} was not measured.", told)
                result = json.loads(run.output.splitlines()[-1])
                line = {"boot": boot, **asdict(case), "result": result}
                raw.write(json.dumps(line) + "\n")
                raw.flush()
                step.advance(detail=f"{case.type}, {case.parts}")


def table(lines: Sequence[dict[str, Any]], meta: dict[str, Any]) -> str:
    """Return a row for each case, and a line that says where it was measured.

    A boot's figure is the median of its pairs; a case's is the median of its boots: cycles of a
    packet without the parts, what they save, how many times as many packets a CPU sends with them.
    """
    by_case: dict[Case, list[dict[str, Any]]] = {}
    for line in lines:
        case = Case(**{name: line[name] for name in Case.__dataclass_fields__})
        by_case.setdefault(case, []).append(line["result"])
    rows = [HEAD, "|---|---|---|---:|---:|---:|---|"]
    for case, of in by_case.items():
        off, saved = (median(result[name] for result in of) for name in ("off", "saved"))
        ratio = interval([result["ratio"] for result in of])
        senders = f"{case.senders}, one route" if case.shared else str(case.senders)
        rows.append(
            f"| {case.type} | {senders} | {case.parts} | {off:,.0f} | {saved:,.0f} "
            f"| {ratio.median:.3f} | {ratio.low:.3f} to {ratio.high:.3f} |"
        )
    here = meta["machine"]
    below = (
        f"{meta['boots']} boots, Linux {meta['kernel']['release']} in user mode, {here['cpu']}, "
        f"{here['cpus']} CPUs, {meta['time']}."
    )
    return "\n".join([*rows, "", below, ""])


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m nodrop.bench.tunnel")
    kinds = ["vxlan", "geneve", "gre", "ipip", "sit", "wireguard"]
    parser.add_argument("--type", nargs="+", choices=KINDS, default=kinds)
    parser.add_argument(
        "--senders", nargs="+", choices=("1", "2", "2shared"), default=["1"], help="(1)"
    )
    parser.add_argument("--out", type=Path, help="for the data (out/tunnel-TIME)")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Measure, and print and write the table."""
    arguments = _arguments(argv)
    wanted = [
        Case(kind, int(senders[0]), part, shared=senders.endswith("shared"))
        for kind in arguments.type
        for senders in arguments.senders
        for part in PARTS
    ]
    out = arguments.out or common.default_out("tunnel")
    with Progress() as progress:
        measure(wanted, out, progress)
    text = table(*read_rows(out))
    (out / MARKDOWN_NAME).write_text(text, encoding="utf-8")
    print(f"{text}\nData and table: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(partial(main, sys.argv[1:])))
