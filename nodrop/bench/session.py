# SPDX-License-Identifier: GPL-2.0-only
"""Makes the runs of scenarios in one guest and leaves their raw data in a directory."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from nodrop import lab
from nodrop.bench import machine, order
from nodrop.bench.scenario import Scenario
from nodrop.errors import NodropError
from nodrop.guest.plan import PLAN_NAME, RAW_NAME, Job, Variant, write_plan
from nodrop.guest.runner import PROGRESS_MARK, SYSCTLS
from nodrop.kernel import Artifacts, Kernel, ensure_artifacts, ensure_kernel
from nodrop.progress import Progress, Step
from nodrop.report.files import META_NAME, META_SCHEMA

CPUS = 2
MEMORY = "2G"
BOOT_S = 30.0
RUN_OVERHEAD_S = 6.0
"""Seconds that a run may take beside its window, on a machine that does other things too."""


def measure(
    scenarios: Sequence[Scenario],
    variants: Sequence[Variant],
    out: Path,
    progress: Progress,
) -> None:
    """Prepare all that is needed, make the runs, leave plan, metadata and raw data in ``out``.

    Raises:
        NodropError: a part could not be built, a run failed, the guest's kernel complained,
            or ``out`` cannot be written. Results of earlier runs stay in ``out``.
    """
    kernel = ensure_kernel(progress)
    artifacts = ensure_artifacts(kernel, progress)
    runs = order.jobs(scenarios, variants)
    _prepare(out, kernel, scenarios, variants, runs)
    with progress.step("Measure", total=len(runs)) as step, machine.OtherWork() as others:
        _run(kernel, artifacts, runs, out, step)
    _note(out, "others_cpu_share", others.share)


def _prepare(
    out: Path,
    kernel: Kernel,
    scenarios: Sequence[Scenario],
    variants: Sequence[Variant],
    runs: list[Job],
) -> None:
    meta = {
        "schema": META_SCHEMA,
        "started": machine.now_utc(),
        "machine": machine.describe_machine(),
        "kernel": machine.describe_kernel(kernel),
        "guest": {"cpus": CPUS, "memory": MEMORY, "sysctls": SYSCTLS},
        "source": machine.describe_source(),
        "variants": [str(variant) for variant in variants],
        "scenarios": {scenario.name: scenario.to_data() for scenario in scenarios},
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        if (out / RAW_NAME).exists():
            raise NodropError(
                f"{out} already holds the data of a run.", "Give another directory with --out."
            )
        (out / META_NAME).write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
        write_plan(out / PLAN_NAME, runs)
    except OSError as error:
        raise NodropError(f"Cannot write the results to {out}: {error.strerror}.") from error


def _note(out: Path, name: str, value: float) -> None:
    """Add to the metadata what is known only after the runs."""
    path = out / META_NAME
    meta = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**meta, name: value}, indent=2) + "\n", encoding="utf-8")


def _run(kernel: Kernel, artifacts: Artifacts, runs: list[Job], out: Path, step: Step) -> None:
    said: list[str] = []

    def on_line(line: str) -> None:
        if not line.startswith(PROGRESS_MARK):
            said.append(line)
            return
        state = json.loads(line.removeprefix(PROGRESS_MARK))
        job = runs[state["done"] - 1]
        step.update(f"{job.scenario} {job.case}, pair {job.pair + 1}", done=state["done"])

    result = lab.run(
        kernel,
        [sys.executable, "-m", "nodrop.guest"],
        out=out,
        artifacts=artifacts,
        cpus=CPUS,
        memory=MEMORY,
        timeout=BOOT_S + sum(job.seconds + RUN_OVERHEAD_S for job in runs),
        env={"PYTHONPATH": str(machine.REPOSITORY)},
        on_line=on_line,
        urgent=True,
    )
    if result.splats:
        raise NodropError(
            f"The guest's kernel complained: {result.splats[0].line}.",
            f"The runs so far are in {out}; the kernel's log ends with:\n{_tail(result.log)}",
        )
    if result.status != 0:
        raise NodropError(
            f"A run failed: {said[-1] if said else f'exit status {result.status}'}.",
            f"The runs before it are in {out}.",
        )


def _tail(text: str, lines: int = 20) -> str:
    return "\n".join(text.splitlines()[-lines:])
