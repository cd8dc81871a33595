# SPDX-License-Identifier: GPL-2.0-only
"""The report as one HTML file: no network, no script, the same bytes from the same data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from nodrop.report import inline, noise, origin, plot, remarks, verdict
from nodrop.report.files import PAGE_NAME, RunDirectory
from nodrop.report.rows import (
    MISSING,
    Row,
    Section,
    case_words,
    format_interval,
    format_ratio,
    section,
    whole,
)
from nodrop.report.verdict import Comparison, Outcome

STYLE_SHEET = Path(__file__).with_name("page.css")
# What may be loaded: nothing. A name in the data that got through as a tag could do nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
MARKS = {
    Outcome.BETTER: "▲",
    Outcome.ALL_BETTER: "△",
    Outcome.WORSE: "▼",
    Outcome.ALL_WORSE: "▽",
    Outcome.EVEN: "=",
    Outcome.FEW: "?",
}
GROUPS = (
    ("better", (Outcome.BETTER, Outcome.ALL_BETTER)),
    ("worse", (Outcome.WORSE, Outcome.ALL_WORSE)),
    ("not told apart", (Outcome.EVEN, Outcome.FEW)),
)


@dataclass(frozen=True)
class Part:
    """A run with its summaries: one part of a page."""

    directory: RunDirectory
    summaries: Mapping[str, Any]


def _text(value: object) -> str:
    return escape(str(value))


def page(parts: Sequence[Part]) -> str:
    """Return the whole page."""
    titles = [_heading(part) for part in parts]
    title = f"nodrop: {titles[0]}" if len(parts) == 1 else f"nodrop: {len(parts)} runs"
    style = STYLE_SHEET.read_text(encoding="utf-8")
    body = ["<h1>nodrop: drivers side by side</h1>"]
    if len(parts) > 1:
        links = "".join(
            f'<li><a href="#run{number}">{_text(name)}</a></li>'
            for number, name in enumerate(titles, start=1)
        )
        body.append(f'<nav aria-label="Runs"><ul>{links}</ul></nav>')
    body += [
        _run(part, f"run{number}", name)
        for number, (part, name) in enumerate(zip(parts, titles, strict=True), start=1)
    ]
    body.append(_reading())
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _heading(part: Part) -> str:
    day = str(part.directory.meta.get("started", ""))[:10]
    names = ", ".join(part.summaries)
    return f"{names}, {day}" if day else names


def _run(part: Part, name: str, title: str) -> str:
    facts = "".join(
        f"<dt>{_text(key)}</dt><dd>{_text(value)}</dd>"
        for key, value in [
            *origin.facts(part.directory, part.summaries),
            *remarks.facts(part.directory),
        ]
    )
    sentences = noise.sentences(part.summaries)
    rest = "".join(f"<li>{_text(sentence)}</li>" for sentence in sentences[1:])
    state = {True: "noisy", False: "quiet", None: "unknown"}[noise.noisy(part.summaries)]
    commands = "\n".join(_text(command) for command in origin.again(part.directory))
    lines = [
        f'<section id="{name}" aria-labelledby="{name}-title">',
        f'<h2 id="{name}-title">{_text(title)}</h2>',
        f"<dl>{facts}</dl>",
        f'<div class="noise {state}"><p><strong>{_text(sentences[0])}</strong></p>'
        f"<ul>{rest}</ul></div>",
        _failures(part.directory),
    ]
    variants = part.directory.meta["variants"]
    panels = plot.panels(part.summaries, variants)
    for number, (scenario, summary) in enumerate(part.summaries.items(), start=1):
        own = [panel for panel in panels if panel.scenario == scenario]
        lines += _scenario(part, scenario, summary, own, f"{name}-{number}")
    lines += ["<h3>Run it again</h3>", f"<pre>{commands}</pre>", "</section>"]
    return "\n".join(lines)


def _failures(directory: RunDirectory) -> str:
    """Return the block of what failed; facts tell when nothing did or when it is not known."""
    if not directory.failures:
        return ""
    lines = "".join(f"<p><strong>{_text(one)}</strong></p>" for one in remarks.failed(directory))
    return f'<div class="noise noisy">{lines}</div>'


def _scenario(
    part: Part, name: str, summary: Mapping[str, Any], panels: Sequence[plot.Panel], prefix: str
) -> list[str]:
    scenario, variants = part.directory.scenarios[name], part.directory.meta["variants"]
    compared = verdict.comparisons(scenario, summary, variants)
    figures = "".join(
        _figure(panel, summary, variants, f"{prefix}-{number}-", whole(scenario, summary))
        for number, panel in enumerate(panels, start=1)
    )
    numbers = section(scenario, summary, variants, format_interval)
    return [
        f"<h3>{_text(scenario.title)}</h3>",
        "<h4>Where nodrop wins and where it does not</h4>",
        *(_counts(compared, against) for against in variants if against != verdict.OURS),
        _verdicts(compared, whole(scenario, summary)),
        f'<div class="figures">{figures}</div>' if figures else "",
        "<h4>All numbers</h4>",
        _numbers(numbers),
    ]


def _counts(compared: Sequence[Comparison], against: str) -> str:
    counts = verdict.count(compared, against)
    if not counts:
        return ""
    words = "; ".join(f"{MARKS[kind]} {kind}: {number}" for kind, number in counts.items())
    total = sum(counts.values())
    return f"<p>Beside {_text(against)}, {total} comparisons. {_text(words)}.</p>"


def _verdicts(compared: Sequence[Comparison], together: str) -> str:
    if not compared:
        return "<p>Nothing to compare: nodrop and another driver did not both run.</p>"
    verdicts = [verdict for one in compared for verdict in (*one.cases, one.together)]
    if all(verdict.outcome is Outcome.FEW for verdict in verdicts):
        return ""
    heads = ["beside", "metric", *(f"nodrop {name}" for name, _ in GROUPS), together]
    rows = []
    for one in compared:
        cells = "".join(f"<td>{_cases(one, outcomes)}</td>" for _, outcomes in GROUPS)
        rows.append(
            f'<tr><th scope="row">{_text(one.against)}</th>'
            f'<th scope="row">{_text(one.metric)}</th>{cells}'
            f'<td class="number">{_split(one.together.text)}'
            f"<small>{MARKS[one.together.outcome]} {_text(one.together.outcome)}</small></td></tr>"
        )
    return _table(
        "verdicts",
        "By case; last, over all cases: the ratio, or the medians of nodrop and the other",
        heads,
        [f"<tbody>{''.join(rows)}</tbody>"],
        numbers_from=len(heads) - 1,
    )


def _cases(one: Comparison, outcomes: Sequence[Outcome]) -> str:
    lines = []
    for kind in outcomes:
        cases = one.of(kind)
        if cases:
            every = len(cases) == len(one.cases) > 1
            names = f"all {len(cases)} cases" if every else "; ".join(cases)
            short = kind in (Outcome.ALL_BETTER, Outcome.ALL_WORSE, Outcome.FEW)
            extra = f"<small>{_text(kind)}</small>" if short else ""
            lines.append(f"{MARKS[kind]} {_text(names)}{extra}")
    return "<br>".join(lines) or MISSING


def _numbers(part: Section) -> str:
    groups: list[list[Row]] = []
    for row in part.rows:
        if row.case or not groups:
            groups.append([])
        groups[-1].append(row)
    bodies = []
    for group in groups:
        case = group[0].case
        lines = []
        for index, row in enumerate(group):
            head = (
                f'<th scope="rowgroup" rowspan="{len(group)}">{_text(case)}</th>'
                if not index
                else ""
            )
            cells = "".join(f'<td class="number">{_split(cell)}</td>' for cell in row.cells)
            lines.append(f'<tr>{head}<th scope="row">{_text(row.metric)}</th>{cells}</tr>')
        kind = ' class="all"' if case == part.whole else ""
        bodies.append(f"<tbody{kind}>{''.join(lines)}</tbody>")
    heads = ["case", "metric", *part.columns]
    return _table(
        "numbers",
        "Medians, below them the 95 % intervals (fewer than six values: the range)",
        heads,
        bodies,
        numbers_from=2,
    )


def _split(cell: str) -> str:
    """Return a cell with its interval on a line of its own."""
    value, bracket, rest = cell.partition(" [")
    return _text(value) + (f"<small>[{_text(rest)}</small>" if bracket else "")


def _table(
    kind: str, caption: str, heads: Sequence[str], bodies: Sequence[str], *, numbers_from: int
) -> str:
    cells = "".join(
        f'<th scope="col"{" class=" + chr(34) + "number" + chr(34) if at >= numbers_from else ""}>'
        f"{_text(head)}</th>"
        for at, head in enumerate(heads)
    )
    # A part that scrolls can be reached by the keyboard.
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_text(caption)}">'
        f'<table class="{kind}"><caption>{_text(caption)}</caption>'
        f"<thead><tr>{cells}</tr></thead>\n{chr(10).join(bodies)}</table></div>"
    )


def _figure(
    panel: plot.Panel, summary: Mapping[str, Any], variants: Sequence[str], prefix: str, of: str
) -> str:
    words = _description(panel, summary, variants, of)
    drawn = inline.picture(plot.svg(panel, variants), prefix, panel.title, words)
    return (
        f"<figure><figcaption>{_text(panel.title)}</figcaption>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_text(panel.title)}">'
        f"{drawn}</div></figure>"
    )


def _description(
    panel: plot.Panel, summary: Mapping[str, Any], variants: Sequence[str], of: str
) -> str:
    """Return what a picture shows, in words: the numbers over all cases, or what ``of`` says."""
    names = [panel.case] if panel.case else summary["cases"]
    part = summary["cases"][panel.case] if panel.case else summary
    words = [f"By case: {'; '.join(', '.join(case_words(name)) for name in names)}."]
    where = "" if panel.case else f" over {of}"
    for metric in panel.metrics:
        told = []
        for variant in variants:
            value = part["variants"].get(variant, {}).get(metric)
            ratio = part["ratios"].get(f"{variant}/stock", {}).get(metric)
            if value:
                times = f" ({format_ratio(ratio)} times stock)" if ratio else ""
                told.append(f"{variant} {format_interval(value)}{times}")
        words.append(f"{metric.replace('_', ' ')}{where}: {'; '.join(told)}.")
    return " ".join(words)


def _reading() -> str:
    return (
        '<section aria-labelledby="reading"><h2 id="reading">How to read this</h2>'
        "<p>A pair is one run of each driver, right after each other, with the same parameters; "
        "ratios are made within pairs. Intervals are distribution-free and hold the true median "
        "with at least 95 %; for fewer than six values they are the whole range. A rate or a "
        "time is better or worse when its ratio's interval leaves 1 out, a count when the "
        "intervals of both drivers leave a gap; fewer than four pairs tell nothing. With many "
        "comparisons, one in twenty or so comes out by chance. A ring has txqueuelen slots. Lost: "
        "dropped by the driver although a queue stood before it that could have held the packet. "
        "An arrow's head in a picture: the interval goes on.</p></section>"
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
