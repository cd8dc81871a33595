# SPDX-License-Identifier: GPL-2.0-only
"""Makes the runs of scenarios in a guest and leaves their raw data in a directory.

An interrupted run is taken up in another guest; the pairs in the data are whole ones.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from nodrop import lab
from nodrop.bench import identity, machine, noise, order, programs, rundir
from nodrop.bench.failures import Recorder
from nodrop.bench.scenario import Scenario
from nodrop.errors import NodropError, UnsupportedError
from nodrop.guest.plan import Job, Variant
from nodrop.guest.runner import PROGRESS_MARK, SYSCTLS
from nodrop.kernel import Artifacts, Kernel, ensure_artifacts, ensure_kernel
from nodrop.progress import Progress, Step
from nodrop.report.files import META_SCHEMA
from nodrop.signals import INTERRUPTED

CPUS = 2
MEMORY = "2G"
BOOT_S = 30.0
RUN_OVERHEAD_S = 20.0
"""Seconds that a run may take beside its window, on a machine that does other things too: a VPN
starts, and TCP opens its window."""
GUEST_NAME = "nodrop.guest: "
"""What the guest's errors begin with."""


def measure(
    scenarios: Sequence[Scenario],
    variants: Sequence[Variant],
    out: Path,
    progress: Progress,
    flavour: str = "perf",
) -> None:
    """Prepare all that is needed, make the runs, leave plan, metadata and raw data in ``out``.

    Cases whose programs are not installed are left out, and told.

    Args:
        flavour: the kernel's; another than ``perf`` only to test.

    Raises:
        UnsupportedError: no case is left.
        NodropError: a part could not be built, a run failed, the guest's kernel complained,
            ``out`` cannot be written, or the user interrupted (exit status 130). What was
            measured stays in ``out``; the hint tells how to go on.
    """
    scenarios = [programs.leave_out(scenario) for scenario in scenarios]
    missing = [sentence for scenario in scenarios for sentence in programs.told(scenario)]
    if not any(scenario.cases() for scenario in scenarios):
        raise UnsupportedError("Nothing can be measured here.", "\n".join(missing))
    for sentence in missing:
        progress.note(sentence)
    kernel = ensure_kernel(progress, flavour)
    artifacts = ensure_artifacts(kernel, progress)
    runs = order.jobs(scenarios, variants)
    meta = {
        "schema": META_SCHEMA,
        "started": machine.now_utc(),
        "machine": machine.describe_machine(),
        "kernel": machine.describe_kernel(kernel),
        "guest": {"cpus": CPUS, "memory": MEMORY, "sysctls": SYSCTLS},
        "source": machine.describe_source(),
        "identity": identity.describe(kernel, artifacts, scenarios),
        "variants": [str(variant) for variant in variants],
        "scenarios": {scenario.name: scenario.to_data() for scenario in scenarios},
        "continued": [],
    }
    with rundir.locked(out):
        rundir.create(out, meta, runs)
        _run(kernel, artifacts, runs, out, progress)


def go_on(out: Path, progress: Progress) -> None:
    """Make the runs that are missing in ``out`` after an interruption; there may be none.

    Raises:
        NodropError: as :func:`measure`; or machine, kernel, modules or programs are others.
    """
    meta, runs = rundir.read(out)
    if len(meta["scenarios"]) != 1:
        raise NodropError(
            f"{out} holds several scenarios, as 'nodrop demo' makes them.",
            "Start it again; only what 'nodrop bench' made can be continued.",
        )
    with rundir.locked(out):
        made = rundir.made(out, runs)
        if made == len(runs):
            progress.note(f"All {rundir.pairs(runs)} pairs are there already.")
            return
        kernel = ensure_kernel(progress)
        artifacts = ensure_artifacts(kernel, progress)
        scenarios = [Scenario.from_data(*item) for item in meta["scenarios"].items()]
        now = identity.describe(kernel, artifacts, scenarios)
        if wrong := identity.differences(meta["identity"], now):
            raise NodropError(
                f"{out} cannot be continued: what is measured is not the same any more.",
                "\n".join([*wrong, "Measure again, into another directory."]),
            )
        kept = rundir.whole(runs, made)
        note = {"at": machine.now_utc(), "runs_before": kept, "runs_dropped": made - kept}
        try:
            rundir.cut(out, kept)
            rundir.write_meta(out, {**meta, "continued": [*meta["continued"], note]})
        except OSError as error:
            raise rundir.unwritable(out, error) from error
        _run(kernel, artifacts, runs, out, progress)


def _run(
    kernel: Kernel, artifacts: Artifacts, runs: list[Job], out: Path, progress: Progress
) -> None:
    """Make what is missing; whatever ends it, tell what is there and how to go on."""
    recorder = Recorder(out, runs)
    try:
        with progress.step("Measure", total=len(runs)) as step:
            _boot(kernel, artifacts, runs, out, step, recorder)
    except KeyboardInterrupt:
        hint = "\n".join(filter(None, [recorder.unwritten, _kept(out, runs)]))
        raise NodropError("Interrupted.", hint, INTERRUPTED) from None
    except OSError as error:
        raise NodropError(
            f"Cannot write the results to {out}: {error.strerror}.", _kept(out, runs)
        ) from error
    except NodropError as error:
        hint = "\n".join(filter(None, [error.hint, recorder.unwritten, _kept(out, runs)]))
        raise NodropError(error.message, hint, error.status) from error


def _kept(out: Path, runs: list[Job]) -> str:
    """Return what is there and how to go on."""
    whole = rundir.whole(runs, rundir.made(out, runs))
    told = f"{rundir.pairs(runs[:whole])} of {rundir.pairs(runs)} pairs are complete, in {out}."
    if len({job.scenario for job in runs}) == 1:
        told += f" Go on with: nodrop bench --continue {shlex.quote(str(out))}"
    return told


def _boot(
    kernel: Kernel,
    artifacts: Artifacts,
    runs: list[Job],
    out: Path,
    step: Step,
    recorder: Recorder,
) -> None:
    said: list[str] = []
    host = noise.HostNoise(out)
    first = rundir.made(out, runs)

    def on_line(line: str) -> None:
        if not line.startswith(PROGRESS_MARK):
            said.append(line)
            return
        recorder.done = done = int(json.loads(line.removeprefix(PROGRESS_MARK))["done"])
        if done == first:
            host.begins()
            return
        job = runs[done - 1]
        host.ended(done - 1)
        step.update(f"{job.scenario} {job.case}, pair {job.pair + 1}", done=done)

    try:
        result = lab.run(
            kernel,
            [sys.executable, "-m", "nodrop.guest"],
            out=out,
            artifacts=artifacts,
            cpus=CPUS,
            memory=MEMORY,
            timeout=BOOT_S + sum(job.seconds + RUN_OVERHEAD_S for job in runs[first:]),
            env={"PYTHONPATH": str(machine.REPOSITORY)},
            on_line=on_line,
            on_log=recorder.heard,
            urgent=True,
        )
    except (lab.GuestDied, lab.GuestTimeout) as error:
        recorder.failed(error.message, error.hint)
        raise
    recorder.complained(result.splats)
    text = said[-1] if said else f"exit status {result.status}"
    if result.status != 0:
        recorder.failed(text.removeprefix(GUEST_NAME), _tail(result.log))
    if result.splats:
        raise NodropError(
            f"The guest's kernel complained: {result.splats[0].line}.",
            f"The kernel's log ends with:\n{_tail(result.log)}",
        )
    if result.status != 0:
        raise NodropError(f"A run failed: {text}.")


def _tail(text: str, lines: int = 20) -> str:
    return "\n".join(text.splitlines()[-lines:])
