# SPDX-License-Identifier: GPL-2.0-only
"""The report as one HTML file: no network, no script, the same bytes from the same data."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from nodrop.bench import programs
from nodrop.guest.plan import Variant
from nodrop.report import noise, plot
from nodrop.report.files import PAGE_NAME, RunDirectory
from nodrop.report.rows import Section, format_interval, section
from nodrop.report.table import note

TEMPLATE = Path(__file__).with_name("page.html")


@dataclass(frozen=True)
class Part:
    """A run with its summaries: one part of a page."""

    directory: RunDirectory
    summaries: Mapping[str, Any]


def page(parts: Sequence[Part]) -> str:
    """Return the whole page."""
    title = "; ".join(", ".join(part.summaries) for part in parts)
    body = "\n".join(map(_run, parts))
    return Template(TEMPLATE.read_text("utf-8")).substitute(title=escape(title), body=body)


def facts(directory: RunDirectory) -> dict[str, str]:
    """Return where a run was made and with what, by names for people."""
    meta = directory.meta
    machine, kernel, source = meta["machine"], meta["kernel"], meta["source"]
    found = {
        "Measured": meta["started"],
        "Machine": f"{machine['cpu']}, {machine['cpus']} CPUs, Linux {machine.get('host_kernel')}",
        "Kernel": f"Linux {kernel['release']} in user mode, {kernel.get('package')}, "
        f"build {kernel.get('build_id')}",
        "nodrop": ", ".join(f"{name} {value}" for name, value in source.items()),
        "Drivers": ", ".join(meta["variants"]),
    }
    if versions := programs.versions_in(meta):
        found["Programs"] = ", ".join(f"{name} {words}" for name, words in versions.items())
    return found


def again(directory: RunDirectory) -> list[str]:
    """Return the commands that measure the same again, with the same lengths."""
    commands = []
    for scenario in directory.scenarios.values():
        words = ["nodrop", "bench", scenario.name]
        words += ["--pairs", str(scenario.pairs), "--seconds", f"{scenario.seconds:g}"]
        if list(directory.meta["variants"]) != [str(variant) for variant in Variant]:
            words += ["--variants", ",".join(directory.meta["variants"])]
        commands.append(shlex.join(words))
    return commands


def _run(part: Part) -> str:
    directory, variants = part.directory, part.directory.meta["variants"]
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>"
        for name, value in facts(directory).items()
    )
    lines = [f"<h2>{escape(', '.join(part.summaries))}</h2>", f"<dl>{rows}</dl>"]
    lines += [f"<p>{escape(noise.sentence(*item))}</p>" for item in part.summaries.items()]
    if picture := plot.svg(part.summaries, variants):
        data = base64.b64encode(picture.encode()).decode()
        lines.append(f'<img alt="the numbers below" src="data:image/svg+xml;base64,{data}">')
    for name, summary in part.summaries.items():
        lines.append(_table(section(directory.scenarios[name], summary, variants, format_interval)))
    lines.append(f"<p>{escape(note(directory, part.summaries))}</p>")
    return "\n".join([*lines, f"<pre>{escape(chr(10).join(again(directory)))}</pre>"])


def _table(part: Section) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in ("case", "metric", *part.columns))
    rows = [
        f"<tr{' class=case' if row.case else ''}><th>{escape(row.case)}</th>"
        f"<th>{escape(row.metric)}</th>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in row.cells)
        + "</tr>"
        for row in part.rows
    ]
    return (
        f"<h3>{escape(part.title)}</h3>\n<div><table><thead><tr>{head}</tr></thead>\n"
        f"<tbody>{chr(10).join(rows)}</tbody></table></div>"
    )


def write(parts: Sequence[Part], path: Path) -> None:
    """Write the page.

    Raises:
        OSError: it cannot be written.
    """
    path.write_text(page(parts), encoding="utf-8", errors="backslashreplace")


def write_beside(directory: RunDirectory, summaries: Mapping[str, Any]) -> None:
    """Write the page of one run beside its raw data.

    Raises:
        OSError: it cannot be written.
    """
    write([Part(directory, summaries)], directory.path / PAGE_NAME)
