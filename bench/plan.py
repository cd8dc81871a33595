# SPDX-License-Identifier: GPL-2.0-only
"""What host and guest share: the plan, a JSON file with the runs to make, and progress marks."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from lab.variant import Variant

PLAN_NAME = "plan.json"
RAW_NAME = "raw.jsonl"
NO_QUEUE = "noqueue"
"""A qdisc without a queue: the driver must drop what does not fit into the ring."""

PROGRESS_MARK = "@nodrop-progress "
"""Prefix of a line for the host's progress display; a JSON object follows."""

Parameters = Mapping[str, int | float | str | bool]


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        scenario: its name, for the result.
        kind: as in its scenario.
        case: its name, for the result.
        parameters: of the case.
        variant: the driver.
        pair: number of the pair; its runs of the same case are compared.
        seconds: length of the measured window.
        boot: number of the guest that makes the run.
    """

    scenario: str
    kind: str
    case: str
    parameters: Parameters
    variant: Variant
    pair: int
    seconds: float
    boot: int


def write_plan(path: Path, jobs: list[Job]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps({"jobs": [asdict(job) for job in jobs]}, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_plan(path: Path) -> list[Job]:
    return [
        Job(**{**job, "variant": Variant(job["variant"])})
        for job in json.loads(path.read_text())["jobs"]
    ]
