# SPDX-License-Identifier: GPL-2.0-only
"""The directory of a run while it is made: begun, interrupted, taken up again.

The guest appends to the raw data in the order of the plan, so they are always the plan's
beginning: how many runs were made says which are missing.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.guest.plan import PLAN_NAME, RAW_NAME, Job, write_plan
from bench.report.files import META_NAME, META_SCHEMA, NOISE_NAME, parse_noise, parse_raw
from bench.scenario import Scenario
from lab.guest.variant import Variant
from nodrop.errors import NodropError
from nodrop.host import etc


def jobs(scenarios: Sequence[Scenario], variants: Sequence[Variant]) -> list[Job]:
    """Return all runs of all scenarios, pair by pair: what is compared runs side by side.

    In each pair the drivers of one case run one right after another, so that a change of the
    machine's speed meets them all. All orders of the drivers take turns in each case, so that
    none is always the first.
    """
    orders = list(itertools.permutations(variants))
    return [
        Job(
            scenario=scenario.name,
            kind=scenario.kind,
            case=case.name,
            parameters=case.parameters,
            variant=variant,
            pair=pair,
            seconds=scenario.seconds,
        )
        for pair in range(max(scenario.pairs for scenario in scenarios))
        for scenario in scenarios
        if pair < scenario.pairs
        for number, case in enumerate(scenario.cases())
        for variant in orders[(pair + number) % len(orders)]
    ]


def group(job: Job) -> tuple[str, str, int]:
    """Return what the runs of one pair have in common."""
    return job.scenario, job.case, job.pair


def whole(jobs: list[Job], made: int) -> int:
    """Return how many of the first ``made`` runs belong to complete pairs."""
    while 0 < made < len(jobs) and group(jobs[made]) == group(jobs[made - 1]):
        made -= 1
    return made


def pairs(jobs: list[Job]) -> int:
    """Return the number of pairs."""
    return len({group(job) for job in jobs})


def unwritable(out: Path, error: OSError) -> NodropError:
    """Return the error for a directory that takes nothing."""
    return NodropError(f"Cannot write the results to {out}: {error.strerror}.")


def refuse_data(out: Path) -> None:
    """Refuse a directory that holds the data of a run.

    Raises:
        NodropError: it does.
    """
    if (out / RAW_NAME).exists():
        raise NodropError(
            f"{out} already holds the data of a run.", "Give another directory with --out."
        )


def create(out: Path, meta: Mapping[str, Any], jobs: list[Job]) -> None:
    """Begin a run: leave plan and metadata.

    Raises:
        NodropError: there are data of another run, or the directory takes nothing.
    """
    refuse_data(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_plan(out / PLAN_NAME, jobs)
        # Last: a directory with metadata can be continued.
        write_meta(out, meta)
    except OSError as error:
        raise unwritable(out, error) from error


def write_meta(out: Path, meta: Mapping[str, Any]) -> None:
    """Write the metadata so that a crash leaves the old or the new ones.

    Raises:
        OSError: they cannot be written.
    """
    etc.replace(out / META_NAME, json.dumps(meta, indent=2).encode() + b"\n")


def read(out: Path) -> tuple[dict[str, Any], list[Job]]:
    """Return metadata and plan of a run that was begun.

    Raises:
        NodropError: there is none, or it is broken.
    """
    try:
        meta = json.loads((out / META_NAME).read_text(encoding="utf-8"))
        if meta["schema"] != META_SCHEMA:
            raise ValueError("another version of nodrop has made them")
        scenarios = [Scenario.from_data(*item) for item in meta["scenarios"].items()]
        return meta, jobs(scenarios, [Variant(name) for name in meta["variants"]])
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise NodropError(f"{out} has no metadata of a run: {error}.") from error


def made(out: Path, jobs: list[Job]) -> int:
    """Return how many runs the raw data have, complete pairs or not.

    Raises:
        NodropError: they are not the plan's beginning.
    """
    try:
        runs = parse_raw((out / RAW_NAME).read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as error:
        raise NodropError(f"The data in {out} are broken: {error}.") from error
    planned = [(*group(job), str(job.variant)) for job in jobs[: len(runs)]]
    if planned != [(run.scenario, run.case, run.pair, run.variant) for run in runs]:
        raise NodropError(f"The data in {out} do not follow the plan there.")
    return len(runs)


def cut(out: Path, runs: int) -> None:
    """Keep the first runs; what follows in raw data and noise, unfinished lines too, goes.

    Raises:
        OSError: the file cannot be changed.
    """
    path = out / RAW_NAME
    if path.exists():
        kept = b"".join(path.read_bytes().splitlines(keepends=True)[:runs])
        with path.open("r+b") as file:
            file.truncate(len(kept))
            os.fsync(file.fileno())
    noise = out / NOISE_NAME
    if noise.exists():
        lines = noise.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        # A run that is made again must not get what the host did the first time.
        stays = [line for line in lines if any(number < runs for number in parse_noise(line))]
        etc.replace(noise, "".join(stays).encode())
