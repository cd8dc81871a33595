# SPDX-License-Identifier: GPL-2.0-only
"""Makes the runs of scenarios in a guest and writes their results to a directory.

An interrupted session can be continued in another guest, with the first incomplete pair.
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
from lab.kernel import Artifacts, Kernel, ensure_artifacts, ensure_kernel
from lab.kernel.artifacts import REPOSITORY
from lab.variant import Variant
from nodrop.errors import NodropError
from nodrop.proc import tail
from nodrop.progress import Progress, Step
from nodrop.signals import INTERRUPTED

CPUS = 2
MEMORY = "2G"
BOOT_S = 30.0
RUN_OVERHEAD_S = 20.0
"""Time limit of a run besides its window, seconds, on a busy machine: VPNs start, and TCP opens its
window."""
SAME = (
    *(("machine", "cpu"), ("machine", "cpus"), ("kernel", "build_id")),
    *(("source", "digest"), ("source", "measured_by")),
)
"""Metadata that must be equal for a session to be continued."""


def measure(
    scenarios: Sequence[Scenario],
    variants: Sequence[Variant],
    out: Path,
    progress: Progress,
    flavour: str = "perf",
    old: str = "",
) -> None:
    """Build what is missing, make the runs, write plan, metadata and raw data to ``out``.

    Args:
        flavour: the kernel's; other than ``perf`` only for tests.
        old: the commit of the variant of that name.

    Raises:
        UnsupportedError: programs that the scenarios run are not installed.
        NodropError: a build or a run failed, the guest's kernel printed a splat, ``out`` cannot be
            written, or the user interrupted (exit status 130). Results so far stay in ``out``; the
            hint says how to continue.
    """
    programs.require(scenarios)
    kernel = ensure_kernel(progress, flavour)
    artifacts = ensure_artifacts(kernel, progress, old)
    runs = rundir.jobs(scenarios, variants)
    meta = {
        "schema": META_SCHEMA,
        "started": provenance.now_utc(),
        **_identity(kernel),
        "programs": programs.versions(scenarios),
        "guest": {"cpus": CPUS, "memory": MEMORY},
        "variants": [str(variant) for variant in variants],
        "old": old,
        "scenarios": {scenario.name: asdict(scenario) for scenario in scenarios},
        "continued": [],
    }
    rundir.create(out, meta, runs)
    _run(kernel, artifacts, runs, out, progress)


def _identity(kernel: Kernel) -> dict[str, Any]:
    """Return what identifies the machine, the kernel and the source."""
    return {
        "machine": provenance.describe_machine(),
        "kernel": provenance.describe_kernel(kernel),
        "source": provenance.describe_source(),
    }


def continue_run(out: Path, progress: Progress) -> None:
    """Make the missing runs of an interrupted session, if there are any.

    Raises:
        NodropError: as :func:`measure`; or machine, kernel or source differ.
    """
    meta, runs = rundir.read(out)
    if len(meta["scenarios"]) != 1:
        raise NodropError(
            f"{out} holds several scenarios, as from 'nodrop-lab demo'.",
            "Start the demo again; only runs of 'nodrop-lab bench' can be continued.",
        )
    made = rundir.made(out, runs)
    if made == len(runs):
        progress.note(f"All {rundir.pairs(runs)} pairs are complete already.")
        return
    kernel = ensure_kernel(progress)
    artifacts = ensure_artifacts(kernel, progress, meta.get("old", ""))
    now = _identity(kernel)
    if wrong := [
        f"{part} {name}" for part, name in SAME if meta[part].get(name) != now[part].get(name)
    ]:
        raise NodropError(
            f"Cannot continue {out}: {', '.join(wrong)} changed.",
            "Measure again, into another directory.",
        )
    try:
        rundir.truncate(out, rundir.in_complete_pairs(runs, made))
        meta["continued"].append(provenance.now_utc())
        rundir.write_meta(out, meta)
    except OSError as error:
        raise rundir.unwritable(out, error) from error
    _run(kernel, artifacts, runs, out, progress)


def _run(
    kernel: Kernel, artifacts: Artifacts, runs: list[Job], out: Path, progress: Progress
) -> None:
    """Make the missing runs; extend an error by a hint about what is complete."""
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
    hint = "\n".join(filter(None, [failed.hint, _progress_hint(out, runs)]))
    raise NodropError(failed.message, hint, failed.status) from failed


def _progress_hint(out: Path, runs: list[Job]) -> str:
    """Return how many pairs are complete and how to continue."""
    complete = rundir.in_complete_pairs(runs, rundir.made(out, runs))
    hint = f"{rundir.pairs(runs[:complete])} of {rundir.pairs(runs)} pairs are complete, in {out}."
    if len({job.scenario for job in runs}) == 1:
        hint += f" Continue with: nodrop-lab bench --continue {shlex.quote(str(out))}"
    return hint


def _boot(kernel: Kernel, artifacts: Artifacts, runs: list[Job], out: Path, step: Step) -> None:
    output: list[str] = []
    host = noise.HostNoise(out)
    first = rundir.made(out, runs)

    def on_line(line: str) -> None:
        if not line.startswith(PROGRESS_MARK):
            output.append(line)
            return
        done = int(json.loads(line.removeprefix(PROGRESS_MARK))["done"])
        if done == first:
            host.start()
            return
        job = runs[done - 1]
        host.record(done - 1)
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
            f"The guest's kernel printed a splat: {result.splats[0].line}.",
            f"The kernel log ends with:\n{tail(result.log)}",
        )
    if result.status != 0:
        text = output[-1] if output else f"exit status {result.status}"
        raise NodropError(f"A run failed: {text}.")
