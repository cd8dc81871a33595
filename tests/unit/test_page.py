# SPDX-License-Identifier: GPL-2.0-only
"""The report's page: what it says, that it fetches nothing, that no name gets out of its text."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from schema import validate

from nodrop import cli
from nodrop.errors import NodropError
from nodrop.report import files, inline, look, origin, page, plot, rows, summary, table

RESULTS = Path(__file__).resolve().parents[2] / "results"
OLDER = Path(__file__).parent / "samples" / "runs"
EVIL = "</title></style><script>alert(1)</script><img src=//x.example onerror=a> \"'&$\\foo$ |\x01"
VOID = {"meta", "br"}


class Reader(HTMLParser):
    """What is on a page: tags, their attributes, and whether they nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def part(path: Path) -> page.Part:
    directory = files.load(path)
    return page.Part(directory, summary.summarise(directory))


def copy(name: str, path: Path) -> Path:
    path.mkdir(parents=True)
    for file in (files.META_NAME, "raw.jsonl"):
        shutil.copy(RESULTS / name / file, path)
    return path


def change(path: Path, **what: Any) -> None:
    meta = path / files.META_NAME
    meta.write_text(json.dumps({**json.loads(meta.read_text()), **what}))


@pytest.fixture(scope="module")
def tap() -> page.Part:
    return part(RESULTS / "tap")


def test_it_is_whole_and_fetches_nothing(tap: page.Part) -> None:
    text = page.page([tap, part(RESULTS / "nullvpn")])
    found = Reader(text)
    names = {tag for tag, _ in found.tags}
    assert names.isdisjoint({"script", "link", "img", "iframe", "object", "base", "image"})
    assert "@import" not in text
    for tag, attributes in found.tags:
        for key, value in attributes.items():
            assert not key.startswith("on")
            if key in ("href", "xlink:href", "src"):
                assert value
                assert value.startswith("#")
        assert "url(" not in (attributes.get("style") or "").replace("url(#", ""), tag
    # A picture's own style would hold for the whole page.
    assert len(found.named("style")) == 1
    assert "metadata" not in names
    (policy,) = (one for one in found.named("meta") if "http-equiv" in one)
    assert policy["http-equiv"] == "Content-Security-Policy"
    assert "default-src 'none'" in (policy["content"] or "")


def test_names_are_used_once_and_lead_somewhere(tap: page.Part) -> None:
    text = page.page([tap, tap, part(RESULTS / "nullvpn")])
    found = Reader(text)
    ids = Counter(attributes["id"] for _, attributes in found.tags if "id" in attributes)
    assert [name for name, times in ids.items() if times > 1] == []
    used = {name for _, attributes in found.tags for name in _references(attributes)}
    assert len(used) > 20
    assert used <= set(ids)


def _references(attributes: dict[str, str | None]) -> list[str]:
    names = []
    for key, value in attributes.items():
        if key in ("href", "xlink:href"):
            names.append((value or "")[1:])
        elif key == "aria-labelledby":
            names += (value or "").split()
        names += re.findall(r"url\(#([^)]*)\)", value or "")
    return names


def test_it_can_be_heard(tap: page.Part) -> None:
    found = Reader(page.page([tap]))
    levels = [int(tag[1]) for tag, _ in found.tags if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert all("scope" in head for head in found.named("th"))
    assert len(found.named("caption")) == len(found.named("table")) == 2
    pictures = found.named("svg")
    assert len(pictures) == len(found.named("desc")) == 2
    assert all(one["role"] == "img" and one["aria-labelledby"] for one in pictures)
    assert found.named("html") == [{"lang": "en"}]


def test_it_says_where_the_numbers_come_from(tap: page.Part) -> None:
    text = page.page([tap])
    meta, found = tap.directory.meta, tap.summaries["tap"]
    lost = found["variants"]["stock"]["lost"]
    for words in (
        "AMD EPYC, 2 CPUs",
        "linux-source-7.3 7.3.4-1~bpo13+1",
        meta["started"][:19],
        f"{found['pairs']} pairs of {found['seconds']:g} s (all {found['runs']} runs)",
        f"commit {meta['source']['commit']}",
        f"nodrop bench tap --pairs {found['pairs']} --seconds {found['seconds']:g}</pre>",
        "The machine was quiet.",
        f"{lost['median']:,.0f}<small>[{lost['low']:,.0f}, {lost['high']:,.0f}]</small>",
    ):
        assert words in text, words


def test_it_promises_no_commit_that_may_be_gone() -> None:
    old = part(RESULTS / "vpn-video")
    text = page.page([old])
    assert "git checkout" not in text
    identity = old.directory.meta["identity"]
    for words in (
        "digest of its source not recorded",
        f"tun.ko {identity['modules']['nodrop/tun.ko']}",
        f"code {identity['guest']}",
        f"recorded at commit {old.directory.meta['source']['commit']}",
    ):
        assert words in text, words


def test_it_names_the_digest_of_the_source(tmp_path: Path) -> None:
    path = copy("tap", tmp_path / "run")
    change(path, source={"version": "0.3.0", "digest": "a1b2"})
    directory = files.load(path)
    assert origin.source(directory) == "version 0.3.0, digest of its source a1b2"
    assert origin.again(directory)[0].startswith('test "$(python -m nodrop.bench.source)" = a1b2 ')
    change(path, source={"version": "0.3.0"}, identity=None)
    assert origin.source(files.load(path)) == "version 0.3.0, digest of its source not recorded"


def test_a_continued_run_says_so(tmp_path: Path, tap: page.Part) -> None:
    assert "Interrupted" not in page.page([tap])
    path = copy("tap", tmp_path / "run")
    at = "2026-11-22T09:00:00+00:00"
    change(path, continued=[{"at": at, "runs_before": 90, "runs_dropped": 1}])
    text = page.page([part(path)])
    assert f"<dt>Interrupted, and continued</dt><dd>at {at}, after 90 runs</dd>" in text


def test_a_caption_tells_of_each_run_what_differs(tap: page.Part) -> None:
    one = tap.summaries["tap"]
    place = "Linux 7.3.4 in user mode, AMD EPYC, 2 CPUs"
    assert table.caption({"tap": one, "vhost": one}).startswith(f"{place}. tap: 10 pairs")
    other = {
        **one,
        "machine": {"cpu": "another", "cpus": 64},
        "kernel": {"release": "9.9"},
        "continued": ["2026-11-22T09:00:00+00:00"],
    }
    said = table.caption({"tap": one, "vhost": other, "esp": one})
    assert said.startswith(f"{place} (tap, esp); Linux 9.9 in user mode, another, 64 CPUs (vhost).")
    assert said.endswith("Interrupted, and continued at 2026-11-22T09:00:00+00:00 (vhost).")


def test_the_same_data_give_the_same_bytes(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        page.write_beside(*vars(part(copy("tap", tmp_path / name))).values())
        made.append((tmp_path / name / files.PAGE_NAME).read_bytes())
    assert made[0] == made[1]


@pytest.mark.filterwarnings("ignore:Glyph 1")
def test_names_stay_text(tmp_path: Path) -> None:
    path = copy("tap", tmp_path / "run")
    meta = json.loads((path / files.META_NAME).read_text())
    scenario = meta["scenarios"].pop("tap")
    scenario |= {"title": EVIL, "matrix": {"senders": [1, EVIL], "txqueuelen": [500]}}
    scenario["metrics"]["delivered_pps"] |= {"label": EVIL, "unit": EVIL}
    meta["scenarios"] = {EVIL: {**scenario, "name": EVIL}}
    for group in ("machine", "kernel", "source"):
        meta[group] = dict.fromkeys(meta[group], EVIL)
    meta["machine"]["cpus"] = EVIL
    meta["guest"] = {"cpus": EVIL, "memory": EVIL, "sysctls": {EVIL: EVIL}}
    meta["started"] = EVIL
    change(path, **meta)
    raw = path / "raw.jsonl"
    lines = [json.loads(line) for line in raw.read_text().splitlines()]
    lines = [line for line in lines if line["case"].endswith("=500")]
    for line in lines:
        line["scenario"] = EVIL
        line["case"] = line["case"].replace("senders=2", f"senders={EVIL}")
    raw.write_text("".join(json.dumps(line) + "\n" for line in lines))

    directory = files.load(path)
    summaries = summary.summarise(directory)
    assert len(summaries[EVIL]["cases"]) == 2
    text = page.page([page.Part(directory, summaries)])
    found = Reader(text)
    ordinary = {tag for tag, _ in Reader(page.page([part(RESULTS / "tap")])).tags}
    assert {tag for tag, _ in found.tags} <= ordinary
    assert "<script" not in text
    assert not [key for _, attributes in found.tags for key in attributes if key.startswith("on")]
    assert "&lt;script&gt;" in text
    for head in re.findall(r"<desc.*?</desc>", text, flags=re.DOTALL):
        assert "&lt;script&gt;" in head
    digest, command = origin.again(directory)[:2]
    assert digest.startswith("""test "$(python -m nodrop.bench.source)" = '</title>""")
    assert command.startswith("nodrop bench '</title>")


def test_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = copy("tap", tmp_path / "run")
    change(path, started="\ud800")
    with pytest.raises(NodropError, match="are broken"):
        files.load(path)


def test_unknown_drivers_are_refused(tmp_path: Path) -> None:
    path = copy("tap", tmp_path / "run")
    change(path, variants=["stock", EVIL])
    with pytest.raises(NodropError, match="unknown driver"):
        files.load(path)


def test_an_interrupted_run_has_a_page(tmp_path: Path) -> None:
    path = copy("tap", tmp_path / "run")
    raw = path / "raw.jsonl"
    raw.write_text("".join(raw.read_text().splitlines(keepends=True)[:1]))
    text = page.page([part(path)])
    assert "1 of 180 runs" in text
    assert "is not known" in text
    assert "not recorded" in text
    assert "Nothing to compare" in text


def test_three_pairs_tell_nothing(tmp_path: Path) -> None:
    path = copy("tap", tmp_path / "run")
    raw = path / "raw.jsonl"
    lines = raw.read_text().splitlines(keepends=True)
    raw.write_text("".join(line for line in lines if json.loads(line)["pair"] < 3))
    text = page.page([part(path)])
    assert "Beside stock, 12 comparisons. ? too few pairs to tell: 12." in text
    assert "nodrop better" not in text
    assert "nodrop worse" not in text
    assert "The machine was quiet" not in text


@pytest.mark.parametrize(
    ("name", "state", "said"),
    [
        ("tap", "quiet", "The machine was quiet."),
        ("guard", "noisy", "Noisy machine: other programs took 68% of the CPUs"),
    ],
)
def test_noise_of_real_runs(name: str, state: str, said: str) -> None:
    text = page.page([part((OLDER if state == "noisy" else RESULTS) / name)])
    assert f'<div class="noise {state}">' in text
    assert said in text


def test_drivers_differ_without_colour() -> None:
    assert len(set(look.HATCHES.values())) == len(set(look.MARKERS.values())) == 3
    for name in look.COLOURS:
        style = page.STYLE_SHEET.read_text()
        assert len(set(re.findall(rf"--{name}: (#\w+)", style))) == 2, "light and dark"
        assert f"--{name}: {look.COLOURS[name]};" in style


def test_a_picture_takes_the_colours_of_its_page(tap: page.Part) -> None:
    panel = plot.panels(tap.summaries, ["stock", "nodrop"])[0]
    text = inline.picture(plot.svg(panel, ["stock", "nodrop"]), "p-", "a < b", "c")
    assert re.findall("#[0-9a-f]{6}", re.sub(r"(id|href)=\"[^\"]*\"", "", text)) == []
    assert 'id="p-title">a &lt; b<' in text


def test_no_picture() -> None:
    with pytest.raises(ValueError, match="not an SVG"):
        inline.picture("<svg", "p-", "a", "b")


def test_markdown_cells_stay_cells() -> None:
    row = rows.Row("a|b<c>", "m", ("1",))
    text = table.markdown([rows.Section("t<u>", ("stock",), (row,))], "n")
    assert "| a\\|b&lt;c> | m | 1 |" in text
    assert "**t&lt;u>**" in text


def test_command_with_several_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(copy(name, tmp_path / name)) for name in ("tap", "nullvpn")]
    out = tmp_path / "all.html"
    assert cli.main(["report", *paths]) == 2
    assert "--out" in capsys.readouterr().err
    assert not out.exists()
    assert cli.main(["report", "-j", *paths, "--out", str(out)]) == 0
    found = json.loads(capsys.readouterr().out)
    validate("report", found)
    assert [one["directory"] for one in found["runs"]] == paths
    assert found["page"] == str(out)
    assert len(Reader(out.read_text()).named("h2")) == 3
    for path in paths:
        assert (Path(path) / files.PAGE_NAME).exists()


def test_command_reads_all_before_it_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy("tap", tmp_path / "run")
    words = ["report", str(run), str(tmp_path / "none"), "--out", str(tmp_path / "x.html")]
    assert cli.main(words) == 1
    assert "not the directory of a run" in capsys.readouterr().err
    assert not (run / files.TABLE_NAME).exists()


def test_command_cannot_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copy("tap", tmp_path / "run")
    assert cli.main(["report", str(run), "--out", str(tmp_path / "no/where.html")]) == 1
    assert "Cannot write the page" in capsys.readouterr().err
