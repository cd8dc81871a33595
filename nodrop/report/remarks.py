# SPDX-License-Identifier: GPL-2.0-only
"""What readers must know of how the runs were made, beside their numbers.

Which programs of the machine were measured with, which cases were left out for want of them, and
what failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodrop.bench import programs
from nodrop.report import failures
from nodrop.report.files import RunDirectory
from nodrop.report.rows import case_words

SET_UP = ("ip", "tc")
"""Programs that every scenario has, and that carry no packet."""


def sentences(directory: RunDirectory) -> list[str]:
    """Return what a table says below its numbers."""
    told = [f"With {words}."] if (words := _versions(directory, but=SET_UP)) else []
    return [*told, *_left_out(directory), *failed(directory)]


def facts(directory: RunDirectory) -> list[tuple[str, str]]:
    """Return what a page says, as names and values."""
    found = [("Programs", _versions(directory))]
    if left := _left_out(directory):
        found.append(("Left out", " ".join(left)))
    return [*found, ("Failures", " ".join(failed(directory)) or "none")]


def failed(directory: RunDirectory) -> list[str]:
    """Return sentences about failures; none when there were none."""
    made = [(run.scenario, run.case, run.variant, run.pair) for run in directory.runs]
    return failures.sentences(directory.failures, made)


def _versions(directory: RunDirectory, but: tuple[str, ...] = ()) -> str:
    """Return the machine's own programs with their versions."""
    identity = directory.meta.get("identity")
    found = identity.get("host_programs") if isinstance(identity, Mapping) else None
    known: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    used = [name for one in directory.scenarios.values() for name in programs.needed(one)]
    return ", ".join(
        f"{name} {_version(known.get(name))}" for name in dict.fromkeys(used) if name not in but
    )


def _version(data: Any) -> str:
    version = data.get("version") if isinstance(data, Mapping) else None
    return str(version or "(version not recorded)")


def _left_out(directory: RunDirectory) -> list[str]:
    return [
        f"Left out of {scenario.name}, because {program} was not installed: "
        f"{'; '.join(', '.join(case_words(case)) for case in cases)}."
        for scenario in directory.scenarios.values()
        for program, cases in scenario.left_out_by_program().items()
    ]
