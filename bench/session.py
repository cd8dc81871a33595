# SPDX-License-Identifier: GPL-2.0-only
"""Makes the runs of scenarios in a guest and leaves their raw data in a directory.

An interrupted run is taken up in another guest; the pairs in the data are whole ones.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import noise, programs, provenance, rundir
from bench.guest.plan import Job
from bench.guest.runner import PROGRESS_MARK
from bench.report.files import META_SCHEMA
from bench.scenario import Scenario
from lab import uml
from lab.guest.prepare import SYSCTLS
from lab.guest.variant import Variant
from lab.kernel import Artifacts, Kernel, ensure_artifacts, ensure_kernel
from lab.kernel.artifacts import REPOSITORY
from nodrop.errors import NodropError
from nodrop.proc import tail
from nodrop.progress import Progress, Step
from nodrop.signals import INTERRUPTED

CPUS = 2
MEMORY = "2G"
BOOT_S = 30.0
RUN_OVERHEAD_S = 20.0
"""Seconds that a run may take beside its window, on a machine that does other things too: a VPN
starts, and TCP opens its window."""
SAME = (
    *(("machine", "cpu"), ("machine", "cpus"), ("kernel", "build_id")),
    *(("source", "digest"), ("source", "measured_by")),
)
"""Metadata that must be the same for runs to be compared."""


def measure(
    scenarios: Sequence[Scenario],
    variants: Sequence[Variant],
    out: Path,
    progress: Progress,
    flavour: str = "perf",
) -> None:
    """Prepare all that is needed, make the runs, leave plan, metadata and raw data in ``out``.

    Args:
        flavour: the kernel's; another than ``perf`` only to test.

    Raises:
        UnsupportedError: programs that the scenarios run are not installed.
        NodropError: a part could not be built, a run failed, the guest's kernel complained,
            ``out`` cannot be written, or the user interrupted (exit status 130). What was
            measured stays in ``out``; the hint tells how to go on.
    """
    programs.require(scenarios)
    kernel = ensure_kernel(progress, flavour)
    artifacts = ensure_artifacts(kernel, progress)
    runs = rundir.jobs(scenarios, variants)
    meta = {
        "schema": META_SCHEMA,
        "started": provenance.now_utc(),
        **_identity(kernel),
        "programs": programs.versions(scenarios),
        "guest": {"cpus": CPUS, "memory": MEMORY, "sysctls": SYSCTLS},
        "variants": [str(variant) for variant in variants],
        "scenarios": {scenario.name: asdict(scenario) for scenario in scenarios},
        "continued": [],
    }
    rundir.create(out, meta, runs)
    _run(kernel, artifacts, runs, out, progress)


def _identity(kernel: Kernel) -> dict[str, Any]:
    """Return what names the machine, the kernel and what is measured."""
    return {
        "machine": provenance.describe_machine(),
        "kernel": provenance.describe_kernel(kernel),
        "source": provenance.describe_source(),
    }


def go_on(out: Path, progress: Progress) -> None:
    """Make the runs that are missing in ``out`` after an interruption; there may be none.

    Raises:
        NodropError: as :func:`measure`; or machine, kernel or source are others.
    """
    meta, runs = rundir.read(out)
    if len(meta["scenarios"]) != 1:
        raise NodropError(
            f"{out} holds several scenarios, as 'nodrop-lab demo' makes them.",
            "Start it again; only what 'nodrop-lab bench' made can be continued.",
        )
    made = rundir.made(out, runs)
    if made == len(runs):
        progress.note(f"All {rundir.pairs(runs)} pairs are there already.")
        return
    kernel = ensure_kernel(progress)
    artifacts = ensure_artifacts(kernel, progress)
    now = _identity(kernel)
    if wrong := [
        f"{part} {name}" for part, name in SAME if meta[part].get(name) != now[part].get(name)
    ]:
        raise NodropError(
            f"{out} cannot be continued: {', '.join(wrong)} differ now.",
            "Measure again, into another directory.",
        )
    try:
        rundir.cut(out, rundir.whole(runs, made))
        meta["continued"].append(provenance.now_utc())
        rundir.write_meta(out, meta)
    except OSError as error:
        raise rundir.unwritable(out, error) from error
    _run(kernel, artifacts, runs, out, progress)


def _run(
    kernel: Kernel, artifacts: Artifacts, runs: list[Job], out: Path, progress: Progress
) -> None:
    """Make what is missing; whatever ends it, tell what is there and how to go on."""
    try:
        with progress.step("Measure", total=len(runs)) as step:
            _boot(kernel, artifacts, runs, out, step)
        return
    except KeyboardInterrupt:
        failed = NodropError("Interrupted.", "", INTERRUPTED)
    except OSError as error:
        failed = rundir.unwritable(out, error)
    except NodropError as error:
        failed = error
    hint = "\n".join(filter(None, [failed.hint, _kept(out, runs)]))
    raise NodropError(failed.message, hint, failed.status) from failed


def _kept(out: Path, runs: list[Job]) -> str:
    """Return what is there and how to go on."""
    whole = rundir.whole(runs, rundir.made(out, runs))
    told = f"{rundir.pairs(runs[:whole])} of {rundir.pairs(runs)} pairs are complete, in {out}."
    if len({job.scenario for job in runs}) == 1:
        told += f" Go on with: nodrop-lab bench --continue {shlex.quote(str(out))}"
    return told


def _boot(kernel: Kernel, artifacts: Artifacts, runs: list[Job], out: Path, step: Step) -> None:
    said: list[str] = []
    host = noise.HostNoise(out)
    first = rundir.made(out, runs)

    def on_line(line: str) -> None:
        if not line.startswith(PROGRESS_MARK):
            said.append(line)
            return
        done = int(json.loads(line.removeprefix(PROGRESS_MARK))["done"])
        if done == first:
            host.begins()
            return
        job = runs[done - 1]
        host.ended(done - 1)
        step.update(f"{job.scenario} {job.case}, pair {job.pair + 1}", done=done)

    result = uml.run(
        kernel,
        [sys.executable, "-m", "bench.guest"],
        out=out,
        artifacts=artifacts,
        cpus=CPUS,
        memory=MEMORY,
        timeout=BOOT_S + sum(job.seconds + RUN_OVERHEAD_S for job in runs[first:]),
        env={"PYTHONPATH": str(REPOSITORY)},
        on_line=on_line,
        urgent=True,
    )
    if result.splats:
        raise NodropError(
            f"The guest's kernel complained: {result.splats[0].line}.",
            f"The kernel's log ends with:\n{tail(result.log)}",
        )
    if result.status != 0:
        text = said[-1] if said else f"exit status {result.status}"
        raise NodropError(f"A run failed: {text}.")
