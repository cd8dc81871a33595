# SPDX-License-Identifier: GPL-2.0-only
"""What the parts of the tunnels' series save: raw data, a line for each boot and case."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nodrop import proc
from nodrop.bench import machine
from nodrop.errors import NodropError
from nodrop.guest.plan import RAW_NAME
from nodrop.kernel import ensure_artifacts, ensure_kernel
from nodrop.lab import uml
from nodrop.progress import Progress
from nodrop.report.files import META_NAME

FLAVOUR = "tunnel-ab"
"""The kernel with a switch for each part of the series."""
SLOT_S = 0.0016
"""How long one variant is measured before the other."""
BOOT_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Case:
    """What is measured.

    Attributes:
        type: of tunnel, of nodrop.guest.tunnels.kinds.KINDS.
        lower: the device below, a nodrop.guest.tunnels.topology.Lower.
        senders: a CPU each.
        parts: of the series, what is switched on and off; commas between them.
        shared: a PMTU exception makes the senders share one route.
    """

    type: str
    lower: str
    senders: int
    parts: str
    shared: bool = False

    def argv(self, slots: int) -> list[str]:
        """Return the guest's command."""
        cpus = ",".join(str(cpu) for cpu in range(self.senders))
        words = ["--type", self.type, "--lower", self.lower, "--features", self.parts]
        words += ["--cpus", cpus, "--slots", str(slots)]
        return words + (["--shared"] if self.shared else [])


def measure(
    wanted: Sequence[Case], boots: int, seconds: float, out: Path, progress: Progress
) -> None:
    """Measure all cases once in each boot, and leave raw data and metadata in ``out``.

    Args:
        boots: what differs from boot to boot, such as where memory is, differs between them.
        seconds: of each case in each boot, for both variants together.

    Raises:
        NodropError: it could not be measured, or ``out`` holds data already.
    """
    if (out / RAW_NAME).exists():
        raise NodropError(
            f"{out} already holds the data of a run.", "Give another directory with --out."
        )
    kernel = ensure_kernel(progress, FLAVOUR)
    artifacts = ensure_artifacts(kernel, progress)
    out.mkdir(parents=True, exist_ok=True)
    slots = max(4, round(seconds / SLOT_S) // 4 * 4)
    meta = {
        "schema": 1,
        "time": machine.now_utc(),
        "kernel": machine.describe_kernel(kernel),
        "machine": machine.describe_machine(),
        "source": machine.describe_source(),
        "boots": boots,
        "slots": slots,
    }
    (out / META_NAME).write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
    with (
        progress.step("Measure tunnels", boots * len(wanted)) as step,
        (out / RAW_NAME).open("w", encoding="utf-8") as raw,
        tempfile.TemporaryDirectory(prefix="nodrop-tunnel-") as place,
    ):
        for boot in range(boots):
            for case in wanted:
                run = uml.run(
                    kernel,
                    ["python3", "-m", "nodrop.guest.tunnels.compare", *case.argv(slots)],
                    out=Path(place),
                    artifacts=artifacts,
                    timeout=BOOT_TIMEOUT_S + 2 * seconds,
                    urgent=True,
                )
                if run.status or run.splats:
                    told = proc.tail(run.log if run.splats else run.output or run.log)
                    raise NodropError(f"{case.type} over {case.lower} was not measured.", told)
                raw.write(json.dumps(_line(boot, case, run.output)) + "\n")
                raw.flush()
                step.advance(detail=f"{case.type} over {case.lower}, {case.parts}")


def _line(boot: int, case: Case, output: str) -> dict[str, Any]:
    told = json.loads(output.splitlines()[-1])
    return {"boot": boot, **asdict(case), "result": told}
