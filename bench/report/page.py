# SPDX-License-Identifier: GPL-2.0-only
"""The report as one HTML file, without network access and scripts; reproducible from its data."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from string import Template
from typing import Any

from bench.report import plot
from bench.report.table import Section, format_interval, note, section, where
from bench.rundir import PAGE_NAME, RunDirectory

TEMPLATE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src \
'unsafe-inline'; img-src data:">
<title>nodrop: $title</title>
<style>
body { font: 15px/1.5 sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #222;
	background: #fff }
dt { font-weight: bold }
img { max-width: 100% }
table { border-collapse: collapse }
th, td { padding: 0.2em 0.8em; text-align: left; white-space: nowrap }
td { text-align: right; font-variant-numeric: tabular-nums }
thead, tr.case { border-top: 1px solid #bbb }
pre, div { overflow-x: auto }
</style>
</head>
<body>
<h1>nodrop: $title</h1>
$body
</body>
</html>
"""


def page(directory: RunDirectory, summaries: Mapping[str, Any]) -> str:
    title = escape(", ".join(summaries))
    body = _run(directory, summaries)
    return Template(TEMPLATE).substitute(title=title, body=body)


def facts(directory: RunDirectory) -> dict[str, str]:
    """Return machine, kernel, source and programs of a run, by displayed names."""
    meta = directory.meta
    machine, kernel = meta["machine"], meta["kernel"]
    displayed = {
        "Measured": meta["started"],
        "Machine": f"{machine['cpu']}, {machine['cpus']} CPUs, Linux {machine.get('host_kernel')}",
        "Kernel": f"{where(kernel, machine)}, {kernel.get('package')}, "
        f"build {kernel.get('build_id')}",
        "nodrop": ", ".join(f"{name} {value}" for name, value in meta["source"].items()),
        "Drivers": ", ".join(meta["variants"]),
    }
    if versions := meta.get("programs"):
        displayed["Programs"] = ", ".join(f"{name} {text}" for name, text in versions.items())
    return displayed


def _run(directory: RunDirectory, summaries: Mapping[str, Any]) -> str:
    variants = directory.meta["variants"]
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>"
        for name, value in facts(directory).items()
    )
    lines = [f"<dl>{rows}</dl>", f"<p>{escape(note(directory, summaries))}</p>"]
    if picture := plot.svg(summaries, variants):
        data = base64.b64encode(picture.encode()).decode()
        lines.append(f'<img alt="the numbers below" src="data:image/svg+xml;base64,{data}">')
    for name, summary in summaries.items():
        lines.append(_table(section(directory.scenarios[name], summary, variants, format_interval)))
    return "\n".join(lines)


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


def write(directory: RunDirectory, summaries: Mapping[str, Any]) -> None:
    """Write the page into the run's directory.

    Raises:
        OSError: it cannot be written.
    """
    text = page(directory, summaries)
    (directory.path / PAGE_NAME).write_text(text, encoding="utf-8", errors="backslashreplace")
