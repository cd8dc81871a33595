# SPDX-License-Identifier: GPL-2.0-only
"""``python -m bench.guest.runner``: make the plan's next runs and append their results."""

from __future__ import annotations

import itertools
import json
import os
import pkgutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import load
from bench.guest.base import Kind
from bench.guest.flent import Flent
from bench.guest.instructions import Instructions
from bench.guest.macvtap import Beside, Macvtap
from bench.guest.pktgen import Tap, Vhost
from bench.guest.shaping import Shaping
from bench.guest.tcp import Multiflow, NullVpn, Tcp, VhostLatency
from bench.guest.udp import Esp, Guard, Scale
from bench.guest.vm import VmLoad
from bench.guest.vpns import VpnLoad, VpnTcp, VpnVideo
from bench.plan import PLAN_NAME, PROGRESS_MARK, RAW_NAME, Job, read_plan
from guestlib.drivers import Drivers
from guestlib.environment import Environment, GuestError, Unsupported, prepare_system

KINDS: dict[str, type[Kind]] = {
    "beside": Beside,
    "esp": Esp,
    "flent": Flent,
    "guard": Guard,
    "instructions": Instructions,
    "macvtap": Macvtap,
    "multiflow": Multiflow,
    "nullvpn": NullVpn,
    "scale": Scale,
    "shaping": Shaping,
    "tap": Tap,
    "tcp": Tcp,
    "vhost": Vhost,
    "vhostlatency": VhostLatency,
    "vm": VmLoad,
    "vpnload": VpnLoad,
    "vpntcp": VpnTcp,
    "vpnvideo": VpnVideo,
}
"""By a scenario's ``kind``: a new one is a class, a line here, and a scenario. Scenarios outside
``bench`` name the class itself, as ``module:class``."""


def append_result(path: Path, result: dict[str, Any]) -> None:
    """Append one line and sync it to the host.

    Raises:
        GuestError: this failed, for example because the disk is full.
    """
    try:
        with path.open("a", encoding="utf-8") as raw:
            raw.write(json.dumps(result) + "\n")
            raw.flush()
            os.fsync(raw.fileno())
    except OSError as error:
        raise GuestError(f"cannot write {path}: {error.strerror}") from error


def results_made(path: Path) -> int:
    """Return the number of results from before an interruption."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def find_kind(name: str) -> type[Kind]:
    """Return the class that runs a scenario's jobs.

    Raises:
        GuestError: there is none.
    """
    try:
        kind: type[Kind] = KINDS.get(name) or pkgutil.resolve_name(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise GuestError(f"there is no kind of scenario called {name}") from error
    return kind


def run_job(job: Job, environment: Environment) -> dict[str, Any]:
    """Make one run and return its line of raw data.

    A case that this kernel cannot run has no metrics, and ``skipped`` with the reason.

    Raises:
        GuestError: the run failed; the message names it.
    """
    line: dict[str, Any] = {
        "scenario": job.scenario,
        "case": job.case,
        "variant": str(job.variant),
        "pair": job.pair,
    }
    started, before = time.monotonic(), load.read()
    try:
        metrics = find_kind(job.kind)(job.parameters, environment).run(job.variant, job.seconds)
    except Unsupported as error:
        return line | {"skipped": str(error), "metrics": {}}
    except (GuestError, OSError) as error:
        where = f"{job.scenario} {job.case} {job.variant} pair {job.pair}"
        raise GuestError(f"{where}: {error}") from error
    return line | {
        "run_s": round(time.monotonic() - started, 4),
        "guest": load.between(before, load.read()),
        "metrics": metrics,
    }


def run_all(jobs: Sequence[Job], environment: Environment, report: Callable[[int], None]) -> None:
    """Make the runs that have no result yet, in order, as far as this guest makes them.

    Args:
        report: called with the number of results, before the first run and after each.

    Raises:
        GuestError: a run failed; earlier results are saved.
    """
    raw = environment.out / RAW_NAME
    first = results_made(raw)
    drivers = Drivers(environment.modules)
    prepare_system()
    report(first)
    try:
        own = itertools.takewhile(lambda job: job.boot == jobs[first].boot, jobs[first:])
        for done, job in enumerate(own, start=first + 1):
            drivers.load(find_kind(job.kind).modules(job.variant))
            append_result(raw, run_job(job, environment))
            report(done)
    finally:
        drivers.unload()


def main() -> int:
    """Run the plan; return 0 if all runs succeeded."""
    try:
        environment = Environment.from_environ()
        jobs = read_plan(environment.out / PLAN_NAME)

        def report(done: int) -> None:
            print(PROGRESS_MARK + json.dumps({"done": done, "of": len(jobs)}), flush=True)

        run_all(jobs, environment, report)
    except GuestError as error:
        print(f"bench.guest: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
