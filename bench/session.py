# SPDX-License-Identifier: GPL-2.0-only
"""Makes the runs of scenarios in a guest and writes their results to a directory.

An interrupted session can be continued in another guest, with the first incomplete pair.
"""

from __future__ import annotations

import json
import pkgutil
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench import load, programs, rundir, source
from bench.plan import PROGRESS_MARK, Job
from bench.scenario import Scenario
from lab import machines, qemu, uml
from lab.guest import GuestRun
from lab.kernel import Artifacts, Kernel, ensure_artifacts, ensure_kernel
from lab.kernel.kconfig import FLAVOURS
from lab.machines import Setup, ensure_machine, ensure_packages
from lab.roots import kernel_names
from lab.sources import REPOSITORY
from lab.variant import COMPARED, Variant
from nodrop import proc
from nodrop.errors import INTERRUPTED, NodropError, UnsupportedError
from nodrop.progress import Progress, Step

PROGRAM = ("-m", "bench.guest.runner")
CPUS = 2
MEMORY = "2G"
BOOT_S = 30.0
RUN_OVERHEAD_S = 20.0
"""On a busy machine: VPNs start, and TCP opens its window."""


@dataclass(frozen=True)
class Guest:
    """A kernel with the modules and programs of the scenarios.

    Attributes:
        kernel: what identifies it, for the metadata.
        cpus: number of its CPUs.
        boot: makes the plan's next runs in it; takes ``out``, ``timeout`` and ``on_line``.
        overhead_s: time limit of a run besides its window, seconds.
    """

    kernel: dict[str, str]
    cpus: int
    boot: Callable[..., GuestRun]
    overhead_s: float = RUN_OVERHEAD_S


def measure(
    scenarios: Sequence[Scenario],
    variants: Sequence[Variant],
    out: Path,
    progress: Progress,
    old: str = "",
) -> None:
    """Build what is missing, make the runs, write plan, metadata and raw data to ``out``.

    Args:
        scenarios: all of one kernel.
        old: the commit of the variant of that name.

    Raises:
        UnsupportedError: programs that the scenarios run are not installed, or the kernel or a
            scenario lacks a driver.
        NodropError: a build or a run failed, the guest's kernel printed a splat, ``out`` cannot be
            written, or the user interrupted (exit status 130). Results so far stay in ``out``; the
            hint says how to continue.
    """
    chosen = []
    for scenario, absent in map(programs.without_absent_vpns, scenarios):
        chosen.append(scenario)
        if absent:
            progress.note(f"{scenario.name}: not installed, left out: {', '.join(absent)}")
    scenarios = chosen
    programs.require(scenarios)
    for scenario in scenarios:
        if absent := [name for name in variants if name not in available(scenario)]:
            raise UnsupportedError(
                f"{scenario.name} cannot compare {absent[0]} on this kernel.",
                f"It can compare: {', '.join(available(scenario))}.",
            )
    guests = _ensure_guests(scenarios[0].kernel, variants, old, progress)
    runs = rundir.jobs(scenarios, variants)
    meta = {
        "schema": rundir.META_SCHEMA,
        "started": source.now_utc(),
        **_here(),
        **_kernel(guests),
        "programs": programs.versions(scenarios),
        "guest": {"cpus": guests[variants[0]].cpus, "memory": MEMORY},
        "variants": [str(variant) for variant in variants],
        "old": old,
        "scenarios": {scenario.name: asdict(scenario) for scenario in scenarios},
        "continued": [],
    }
    rundir.create(out, meta, runs)
    _run(guests, runs, out, progress)


def available(scenario: Scenario) -> tuple[Variant, ...]:
    """Return the drivers that a scenario can compare on its kernel."""
    if scenario.kernel not in kernel_names():
        return tuple(scenario.variants)
    has_flag = scenario.kernel in machines.UPSTREAM
    lacking = {Variant.OLD, Variant.SERIES} | ({Variant.UPSTREAM} if not has_flag else set())
    return tuple(variant for variant in scenario.variants if variant not in lacking)


def compared(scenario: Scenario) -> tuple[Variant, ...]:
    """Return the drivers that a scenario compares unless others are asked for."""
    known = available(scenario)
    return tuple(name for name in known if name in COMPARED or Variant.NODROP not in known)


def _ensure_guests(
    name: str, variants: Sequence[Variant], old: str, progress: Progress
) -> dict[Variant, Guest]:
    """Build or fetch what is missing of a scenario's kernel; return each variant's guest.

    Args:
        name: the kernel, as in the scenario.
        old: the commit of the driver of that name; empty: there is none.
    """
    if ":" in name:
        ensure = pkgutil.resolve_name(name)
        return {variant: ensure(variant, progress) for variant in variants}
    if name in FLAVOURS:
        kernel = ensure_kernel(progress, name)
        guest = in_user_mode(kernel, ensure_artifacts(kernel, progress, old))
    else:
        machine = ensure_machine(name, Setup.INSTALLED, ensure_packages(progress), progress)
        release = machine.kernel.release
        guest = counting(machine.run, release, f"linux-image-{release}", machine.kernel.root.key)
    return dict.fromkeys(variants, guest)


def in_user_mode(
    kernel: Kernel, artifacts: Artifacts, env: Mapping[str, str] | None = None
) -> Guest:
    """Return the guest of a kernel in user mode; env: more environment for the runs."""
    boot = partial(
        uml.run,
        kernel,
        [sys.executable, *PROGRAM],
        artifacts=artifacts,
        cpus=CPUS,
        memory=MEMORY,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": programs.search_path(), **(env or {})},
        urgent=True,
    )
    return Guest(source.describe_kernel(kernel), CPUS, boot)


def counting(run: Callable[..., GuestRun], release: str, package: str, build_id: str) -> Guest:
    """Return the guest of a kernel in QEMU, which counts instructions.

    Args:
        run: boots it, as lab.qemu.run() does without its first argument.
    """
    program = proc.require("qemu-system-x86_64", "qemu-system-x86")
    version = proc.ask(program, "--version").stdout.partition("\n")[0]
    kernel = {"release": release, "package": package, "build_id": build_id, "qemu": version}
    boot = partial(run, ["python3", *PROGRAM], how=qemu.TCG_ICOUNT, cpus=1, memory=MEMORY)
    return Guest(kernel, 1, boot)


def _here() -> dict[str, Any]:
    return {"machine": source.describe_machine(), "source": source.describe_source()}


def _kernel(guests: Mapping[Variant, Guest]) -> dict[str, Any]:
    kernels = [guest.kernel for guest in guests.values()]
    ids = dict.fromkeys(kernel["build_id"] for kernel in kernels)
    return {"kernel": {**kernels[0], "build_id": " ".join(ids)}}


def continue_run(out: Path, progress: Progress) -> None:
    """Make the missing runs of an interrupted session, if there are any.

    Raises:
        NodropError: as :func:`measure`; or machine, kernel or source differ.
    """
    meta, scenarios = rundir.read_meta(out)
    variants = [Variant(name) for name in meta["variants"]]
    runs = rundir.jobs([*scenarios.values()], variants)
    if len(scenarios) != 1:
        raise NodropError(
            f"{out} holds several scenarios, as from 'nodrop-lab demo'.",
            "Start the demo again; only runs of 'nodrop-lab bench' can be continued.",
        )
    made = rundir.made(out, runs)
    now = _here() | {"programs": programs.versions(scenarios.values())}
    _refuse_other(meta, now, out)
    if made == len(runs):
        progress.note(f"All {rundir.pairs(runs)} pairs are complete already.")
        return
    kernel = next(iter(scenarios.values())).kernel
    guests = _ensure_guests(kernel, variants, meta.get("old", ""), progress)
    _refuse_other(meta, _kernel(guests), out)
    try:
        rundir.truncate(out, rundir.in_complete_pairs(runs, made))
        meta["continued"].append(source.now_utc())
        rundir.write_meta(out, meta)
    except OSError as error:
        raise rundir.unwritable(out, error) from error
    _run(guests, runs, out, progress)


def _refuse_other(meta: Mapping[str, Any], now: Mapping[str, Any], out: Path) -> None:
    """Refuse to continue what was measured elsewhere, or of something else.

    Raises:
        NodropError: one of rundir.SAME in ``now`` differs from the metadata.
    """
    if wrong := rundir.differences(meta, now, rundir.SAME):
        raise NodropError(
            f"Cannot continue {out}: {', '.join(wrong)} changed.",
            "Measure again, into another directory.",
        )


def _run(guests: Mapping[Variant, Guest], runs: list[Job], out: Path, progress: Progress) -> None:
    """Make the missing runs; extend an error by a hint about what is complete."""
    try:
        with progress.step("Measure", total=len(runs)) as step:
            for number in dict.fromkeys(job.boot for job in runs[rundir.made(out, runs) :]):
                _boot(guests, runs, number, out, step)
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
    complete = rundir.in_complete_pairs(runs, rundir.made(out, runs))
    pairs = rundir.pairs(runs)
    hint = f"{pairs - rundir.pairs(runs[complete:])} of {pairs} pairs are complete, in {out}."
    if len({job.scenario for job in runs}) == 1:
        hint += f" Continue with: nodrop-lab bench --continue {shlex.quote(str(out))}"
    return hint


def _boot(
    guests: Mapping[Variant, Guest], runs: list[Job], number: int, out: Path, step: Step
) -> None:
    """Boot a guest and let it make its missing runs.

    Args:
        number: of the guest.
    """
    output: list[str] = []
    host = load.HostNoise(out)
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

    own = [job for job in runs[first:] if job.boot == number]
    guest = guests[own[0].variant]
    timeout = BOOT_S + sum(job.seconds + guest.overhead_s for job in own)
    result = guest.boot(out=out, timeout=timeout, on_line=on_line)
    if result.splats:
        raise NodropError(
            f"The guest's kernel printed a splat: {result.splats[0].line}.",
            f"The kernel log ends with:\n{proc.tail(result.log)}",
        )
    if result.status != 0:
        text = output[-1] if output else f"exit status {result.status}"
        raise NodropError(f"A run failed: {text}.")
