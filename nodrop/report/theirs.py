# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.report.theirs``: other people's tables with ours beside them, docs/tables.md.

Their figures and where they come from are data, ``results/theirs.toml``; ours are read from the
summaries below ``results/``. Nothing is typed twice.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from nodrop.errors import FAILED, NodropError
from nodrop.report.files import SUMMARY_NAME
from nodrop.report.rows import MISSING, format_ratio, format_value

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
DATA = RESULTS / "theirs.toml"
PAGE = ROOT / "docs" / "tables.md"
VARIANTS = ("stock", "upstream", "nodrop")
RATIOS = ("upstream/stock", "nodrop/stock")


@dataclass(frozen=True)
class Row:
    """One line of somebody's table.

    Attributes:
        label: what it is about.
        theirs: their figures, in the order of the table's columns; NaN: they have none.
        case: the case of ours that measures the same; "": none does.
        run: our run, when it is another than the table's.
        metric: likewise.
    """

    label: str
    theirs: tuple[float, ...]
    case: str = ""
    run: str = ""
    metric: str = ""


@dataclass(frozen=True)
class Table:
    """One of their tables.

    Attributes:
        title: what it is about.
        source: who measured it, and where it was published.
        unit: of all figures.
        columns: what they compared.
        rows: their lines.
        why: what differs from ours, and why; ``{CASE|METRIC|DRIVER}`` in it is that median of
            ours, ``{CASE|METRIC|DRIVER/DRIVER}`` a ratio, CASE "" the summary of all.
        run: our run below ``results/``, and the scenario's name; "": it cannot be run here.
        metric: ours that is compared, in ``unit`` when it is multiplied by ``scale``.
        scale: see ``metric``.
        command: what measures it elsewhere, when it cannot be run here.
    """

    title: str
    source: str
    unit: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    why: str
    run: str = ""
    metric: str = ""
    scale: float = 1.0
    command: str = ""

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Check and make one.

        Raises:
            ValueError: a field is missing or unknown, or a row has another number of figures.
        """
        try:
            rows = tuple(
                Row(**{**row, "theirs": tuple(map(float, row["theirs"]))}) for row in data["rows"]
            )
            table = cls(**{**data, "rows": rows, "columns": tuple(data["columns"])})
        except (TypeError, LookupError) as error:
            raise ValueError(f"table {data.get('title')}: {error}") from error
        for row in table.rows:
            if len(row.theirs) != len(table.columns):
                raise ValueError(f"table {table.title}: {row.label} has not a figure a column")
        return table


def load(path: Path = DATA) -> list[Table]:
    """Read their tables.

    Raises:
        NodropError: the file is broken.
    """
    try:
        return [Table.from_data(one) for one in tomllib.loads(path.read_text())["table"]]
    except (OSError, ValueError, LookupError) as error:
        raise NodropError(f"{path} cannot be used: {error}.") from error


class Ours:
    """Our summaries, read when they are asked for.

    Args:
        results: the directory that has a run's directory for each name.
    """

    def __init__(self, results: Path = RESULTS) -> None:
        self._results = results
        self._read: dict[str, Any] = {}

    def summary(self, run: str) -> Mapping[str, Any]:
        """Return the summary of the scenario of that name in the run of that name.

        Raises:
            NodropError: there is none.
        """
        if run not in self._read:
            path = self._results / run / SUMMARY_NAME
            try:
                self._read[run] = json.loads(path.read_text())["scenarios"][run]
            except (OSError, ValueError, LookupError) as error:
                raise NodropError(f"{path} has no scenario {run}: {error}.") from error
        found: Mapping[str, Any] = self._read[run]
        return found

    def case(self, run: str, name: str) -> Mapping[str, Any]:
        """Return what a summary tells of one case.

        Raises:
            NodropError: there is none of that name.
        """
        cases = self.summary(run)["cases"]
        if name not in cases:
            raise NodropError(f"Run {run} has no case '{name}'.", f"It has: {'; '.join(cases)}.")
        found: Mapping[str, Any] = cases[name]
        return found


def _value(number: float) -> str:
    return MISSING if number != number else format_value(number)


def _our_cells(table: Table, row: Row, ours: Ours) -> list[str]:
    """Return our medians, and both ratios to stock with their intervals."""
    if not row.case:
        return [MISSING] * (len(VARIANTS) + len(RATIOS))
    run, metric = row.run or table.run, row.metric or table.metric
    case = ours.case(run, row.case)
    cells = []
    for variant in VARIANTS:
        found = case["variants"].get(variant, {}).get(metric)
        cells.append(_value(found["median"] * table.scale) if found else MISSING)
    # As in our own tables, where a ratio of numbers that are mostly 0 tells nothing.
    compared = ours.summary(run)["joins"].get(metric) == "geometric mean"
    for name in RATIOS:
        ratio = case["ratios"].get(name, {}).get(metric) if compared else None
        cells.append(format_ratio(ratio))
    return cells


def _filled(table: Table, ours: Ours) -> str:
    """Return a table's reasons with our figures in their places.

    Raises:
        NodropError: there is no such figure.
    """

    def figure(place: re.Match[str]) -> str:
        name, metric, whose = place[1].split("|")
        found = ours.case(table.run, name) if name else ours.summary(table.run)
        try:
            if "/" in whose:
                return format_ratio(found["ratios"][whose][metric])
            return _value(found["variants"][whose][metric]["median"])
        except KeyError as error:
            raise NodropError(f"{table.title}: no figure for {place[0]}.") from error

    return re.sub(r"\{([^{}|]*\|[^{}|]+\|[^{}|]+)\}", figure, table.why.strip())


def _their_ratio(row: Row) -> str:
    """Return their second column as a ratio to the first."""
    if len(row.theirs) < 2 or row.theirs[0] == 0:
        return MISSING
    ratio = row.theirs[1] / row.theirs[0]
    return MISSING if ratio != ratio else f"{ratio:.2f}"


def _over(ratio: str) -> str:
    return ratio.replace("/", " / ")


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)]


def _origin(summary: Mapping[str, Any]) -> str:
    """Return what ours were measured on, and how many pairs of how long."""
    machine, kernel = summary["machine"], summary["kernel"]
    noisy = {
        True: "; the machine was noisy",
        None: "; whether the machine was quiet is not known",
    }.get(summary["noise"]["noisy"], "")
    return (
        f"{summary['pairs']} pairs, {summary['seconds']:g} s each, Linux {kernel['release']} in "
        f"user mode, {machine['cpu']}, {machine['cpus']} CPUs, {summary['started'][:10]}{noisy}"
    )


def section(table: Table, ours: Ours) -> list[str]:
    """Return the lines of one table's part of the page."""
    lines = [f"## {table.title}", "", f"Theirs: {table.source}. All in {table.unit}.", ""]
    theirs = [f"theirs: {name}" for name in table.columns]
    if not table.run:
        rows = [[row.label, *map(_value, row.theirs)] for row in table.rows]
        lines += _markdown(["", *theirs], rows)
        return [*lines, "", f"**Not measured here.** {table.why.strip()} `{table.command}`", ""]
    heads = ["", *theirs, "ratio", *(f"ours: {name}" for name in VARIANTS), *map(_over, RATIOS)]
    rows = [
        [row.label, *map(_value, row.theirs), _their_ratio(row), *_our_cells(table, row, ours)]
        for row in table.rows
    ]
    lines += _markdown(heads, rows)
    runs = dict.fromkeys([table.run, *(row.run for row in table.rows if row.run)])
    for run in runs:
        data = f"[results/{run}](../results/{run}/table.md)"
        summary = ours.summary(run)
        length = f"--pairs {summary['pairs']} --seconds {summary['seconds']:g}"
        lines += ["", f"Ours: {data}, {_origin(summary)}; `nodrop bench {run} {length}`."]
    return [*lines, "", f"Why they differ: {_filled(table, ours)}", ""]


HEAD = """\
# Other people's tables, and ours

Every table by which the problem or a fix was described, and the same measured here: stock,
upstream's flag and nodrop, paired and interleaved, in one boot of one kernel. Medians; ratios with
95 % intervals where there are six pairs and more. Fewer have no such interval: their range is
given, and three or four pairs prove little. Machines differ, so compare ratios, not figures.
Lost is what the driver dropped, if the table says nothing else.

Made by `python -m nodrop.report.theirs` from `results/theirs.toml` (theirs) and `results/` (ours).
"""

FOOT = """\
## What cannot run here

Real network cards, virtual machines with KVM, paths across an ocean. On two machines of your own
with a VPN between them, as the paper did it, before and after (the device's drops beside it):

    nodrop uninstall; iperf3 -c FAR -t 30 -J; nodrop status
    nodrop install; iperf3 -c FAR -t 30 -J; nodrop status

The VPN must be started again after each change of the driver; with `--live` it need not be.
"""


def page(tables: Sequence[Table], ours: Ours) -> str:
    """Return the whole page.

    Raises:
        NodropError: a run or a case of ours is missing.
    """
    lines = [HEAD]
    for table in tables:
        lines += section(table, ours)
    return "\n".join([*lines, FOOT])


def main() -> int:
    """Write the page."""
    try:
        PAGE.write_text(page(load(), Ours()), encoding="utf-8")
    except NodropError as error:
        print(f"nodrop: {error}", file=sys.stderr)
        return FAILED
    print(f"Made: {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
