# SPDX-License-Identifier: GPL-2.0-only
"""The machine's own programs: recorded, compared, and what happens where one is missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from stand_in import Guest

from nodrop import cli
from nodrop.bench import machine, programs, scenario, series
from nodrop.guest import vpns
from nodrop.guest.scenarios import KINDS
from nodrop.report import files, page, remarks, summary, table

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "results"
VERSIONS = {
    "ip": "ip utility, iproute2-6.1.0, libbpf 1.1.2",
    "iperf3": "iperf 3.12 (cJSON 1.7.15)",
    "ocserv": "ocserv 1.1.6",
    "openconnect": "OpenConnect version v9.01-3\nUsing GnuTLS 3.7.9.",
    "openssl": "OpenSSL 3.0.19 27 Jan 2026 (Library: OpenSSL 3.0.19 27 Jan 2026)",
    "openvpn": "OpenVPN 2.6.14 x86_64-pc-linux-gnu [SSL (OpenSSL)]",
    "tc": "tc utility, iproute2-6.1.0, libbpf 1.1.2",
    "tincd": "tinc version 1.0.36",
    "wg": "wireguard-tools v1.0.20210914 - https://git.zx2c4.com/wireguard-tools/",
    "wireguard-go": "wireguard-go v0.0.20220316\n",
}


def install(place: Path, name: str, text: str) -> None:
    """Put a program into a directory that says this of its version, and fails."""
    file = place / name
    file.write_text(f"#!/bin/sh\nprintf '%s\\n' '{text}'\nexit 1\n")
    file.chmod(0o755)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the only directory with programs; all are there."""
    place = tmp_path / "installed"
    place.mkdir()
    for name, text in VERSIONS.items():
        install(place, name, text)
    monkeypatch.setattr(programs, "PATH", str(place))
    return place


@pytest.fixture
def guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Guest:
    return Guest.put(tmp_path, monkeypatch)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def bench(name: str, out: Path) -> int:
    return cli.main(["-q", "bench", name, "--pairs", "1", "--seconds", "0.1", "--out", str(out)])


def interrupted(guest: Guest, name: str, out: Path) -> None:
    def interrupt(_out: Path) -> None:
        raise KeyboardInterrupt

    guest.stop_after, guest.stop = 3, interrupt
    assert bench(name, out) == 130
    guest.stop_after = -1


def go_on(out: Path) -> int:
    return cli.main(["-q", "bench", "--continue", str(out)])


def test_scenarios_name_what_they_run() -> None:
    needed = {name: programs.needed(scenario.load(name)) for name in scenario.known()}
    assert needed["tap"] == ["ip", "tc"]
    assert needed["tcp"] == ["ip", "tc", "iperf3"]
    assert needed["esp"] == ["ip", "tc", "openssl"]
    assert needed["vpn-video"] == ["ip", "tc", "openvpn", "openssl"]
    assert set(needed["vpn-others"]) > {"tincd", "openconnect", "ocserv", "iperf3"}
    assert {name for names in needed.values() for name in names} == set(programs.PACKAGES)
    assert all(kind.programs[0] == kind.name for kind in vpns.KINDS.values())
    assert programs.inputs(scenario.load("tap")) == []
    clips = {path.name for path in programs.inputs(scenario.load("vpn-video"))}
    assert clips == {"1080p30.txt"}


def test_packages_are_those_that_are_installed() -> None:
    lines = (REPOSITORY / "scripts/packages.txt").read_text().splitlines()
    listed = {line.split()[0] for line in lines if line and line[0] != "#"}
    # Its service would start and listen: nothing installs it by itself.
    assert set(programs.PACKAGES.values()) - listed == {"ocserv"}


def test_versions_are_read(installed: Path) -> None:
    found = programs.describe(VERSIONS)
    assert {name: one["version"] for name, one in found.items()} == {
        "ip": "6.1.0",
        "iperf3": "3.12",
        "ocserv": "1.1.6",
        "openconnect": "9.01-3",
        "openssl": "3.0.19",
        "openvpn": "2.6.14",
        "tc": "6.1.0",
        "tincd": "1.0.36",
        "wg": "1.0.20210914",
        "wireguard-go": "0.0.20220316",
    }
    install(installed, "openvpn", "of my own making")
    assert programs.describe(["openvpn"])["openvpn"]["version"] == "of my own making"
    (installed / "openvpn").unlink()
    assert programs.describe(["openvpn"])["openvpn"] == {"version": "", "digest": ""}


def test_libraries_are_part_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = shutil.which("ls") or ""
    libraries = programs._libraries(Path(shell))
    assert any(path.name.startswith("libc.so") for path in libraries)
    before = programs._digest(Path(shell))
    monkeypatch.setattr(programs, "_libraries", lambda _: libraries[:-1])
    assert programs._digest(Path(shell)) != before


def test_another_program_is_not_gone_on_with(
    guest: Guest, out: Path, installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupted(guest, "vpn", out)
    install(installed, "openvpn", "OpenVPN 2.6.15 x86_64-pc-linux-gnu")
    install(installed, "wireguard-go", "one that the scenario does not run")
    guest.ran.clear()
    capsys.readouterr()
    assert go_on(out) == 1
    said = capsys.readouterr().err
    assert "host_programs openvpn version: it was 2.6.14, now it is 2.6.15" in said
    assert "host_programs openvpn digest: it was" in said
    assert "wireguard-go" not in said
    assert guest.ran == []


def test_another_clip_or_load_is_not_gone_on_with(
    guest: Guest,
    out: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    clip = tmp_path / "clip.txt"
    clip.write_text("1")
    monkeypatch.setattr(machine, "REPOSITORY", tmp_path)
    monkeypatch.setattr(programs, "inputs", lambda _: [clip])
    (tmp_path / "kmod").mkdir()
    (tmp_path / "kmod/VERSION").write_text("0.3.0")
    (tmp_path / "nodrop").mkdir()
    (tmp_path / "nodrop/load.py").write_text("")
    interrupted(guest, "tap", out)
    clip.write_text("2")
    assert go_on(out) == 1
    assert "files clip.txt: it was " in capsys.readouterr().err
    clip.write_text("1")
    (tmp_path / "nodrop/load.py").write_text("2")
    assert go_on(out) == 1
    assert "files nodrop/load.py: it was " in capsys.readouterr().err


def test_another_plan_is_not_gone_on_with(
    guest: Guest, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupted(guest, "tap", out)
    plan = out / "plan.json"
    plan.write_text(plan.read_text().replace('"seconds": 0.1', '"seconds": 0.05'))
    guest.ran.clear()
    assert go_on(out) == 1
    assert "plan.json is not the plan that the runs there were made by" in capsys.readouterr().err
    assert guest.ran == []


@pytest.mark.usefixtures("guest", "installed")
def test_the_report_names_what_was_measured_with(out: Path) -> None:
    assert bench("vpn", out) == 0
    said = " ".join((out / "table.md").read_text().split())
    assert "With openvpn 2.6.14, openssl 3.0.19, iperf3 3.12." in said
    text = (out / "report.html").read_text()
    assert "<dt>Programs</dt><dd>ip 6.1.0, tc 6.1.0, openvpn 2.6.14, openssl 3.0.19," in text


def test_older_data_do_not_tell() -> None:
    directory = files.load(RESULTS / "vpn-video")
    if "host_programs" in directory.meta["identity"]:
        del directory.meta["identity"]["host_programs"]
    (sentence, *_) = remarks.sentences(directory)
    assert sentence == ("With openvpn (version not recorded), openssl (version not recorded).")


def test_what_is_not_installed_is_left_out(
    guest: Guest, out: Path, installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (installed / "ocserv").unlink()
    words = ["bench", "vpn-others", "--pairs", "1", "--seconds", "0.1", "--out", str(out)]
    assert cli.main(words) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "ocserv is not installed" in told
    assert "'apt-get install ocserv && systemctl disable --now ocserv' brings it" in told
    assert "the rest is measured" in told
    assert {job.parameters["vpn"] for job in guest.ran} == {"tincd"}
    sentence = (
        "Left out of vpn-others, because ocserv was not installed: "
        "vpn openconnect, ring 500; vpn openconnect, ring 10."
    )
    assert sentence in " ".join((out / "table.txt").read_text().split())
    text = (out / "report.html").read_text()
    assert sentence in text
    assert "(all 6 runs)" in text
    # It stays left out when the program has come meanwhile: the plan is the plan.
    install(installed, "ocserv", VERSIONS["ocserv"])
    assert go_on(out) == 0


def test_nothing_is_left(
    guest: Guest, out: Path, installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (installed / "iperf3").unlink()
    assert bench("vpn", out) == 4
    told = " ".join(capsys.readouterr().err.split())
    assert "'apt-get install iperf3' brings it" in told
    assert "nothing is left to measure" in told
    assert guest.ran == []
    assert not out.exists()


def test_a_series_does_not_fail_for_it(
    tmp_path: Path, installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (installed / "openvpn").unlink()
    chosen = [scenario.load(name) for name in ("vpn", "tap")]
    asked: list[list[str]] = []

    def command(words: list[str]) -> int:
        asked.append(words)
        return 0

    assert series.run(chosen, tmp_path, command) == {"tap": 0}
    assert [words[1] for words in asked] == ["tap"]
    assert "openvpn is not installed" in capsys.readouterr().err


def test_left_out_cases_are_no_cases() -> None:
    whole = scenario.load("vpn-others")
    cut = scenario.Scenario.from_data(
        "vpn-others", {**whole.to_data(), "left_out": {"vpn=tincd,txqueuelen=10": "tincd"}}
    )
    assert len(cut.cases()) == len(whole.cases()) - 1
    assert scenario.Scenario.from_data("x", json.loads(json.dumps(cut.to_data()))).left_out
    assert programs.leave_out(whole).left_out.keys() <= {case.name for case in whole.cases()}


def test_all_kinds_tell_their_programs() -> None:
    for kind in KINDS.values():
        assert set(kind.host_programs({"vpn": "openvpn"})) <= set(programs.PACKAGES)
        assert kind.host_programs({"vpn": "none of ours"})


def test_pages_of_results_can_be_made() -> None:
    directory = files.load(RESULTS / "vpn-video")
    summaries = summary.summarise(directory)
    assert "openvpn" in table.note(directory, summaries)
    assert "<dt>Programs</dt>" in page.page([page.Part(directory, summaries)])
