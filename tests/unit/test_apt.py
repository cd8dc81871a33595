# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodrop import proc
from nodrop.errors import NodropError, UnsupportedError
from nodrop.kernel import apt
from nodrop.kernel.apt import Candidate

URIS = """\
'http://m.example/debian/dists/bookworm/InRelease' mirror.example_debian_InRelease 0
'http://m.example/debian/dists/bookworm-updates/InRelease' mirror.example_upd 0
'http://security.example/dists/bookworm-security/InRelease' security.example_sec 0
'http://m.example/debian/dists/bookworm/main/binary-amd64/Packages.xz' mirror.example_p 0
'https://vendor.example/apt/dists/nodistro/InRelease' vendor.example_apt 0
"""

MADISON = """\
linux-source-6.12 | 6.12.107-1 | http://m.example trixie/main amd64 Packages
linux-source-6.12 | 6.12.95-1~bpo12+1 | http://m.example bookworm-backports/main amd64 Packages
linux-source-7.2 |   7.2.13-1 | http://m.example sid/main amd64 Packages
linux-source-7.3 | 7.3.4-1~bpo13+1 | http://m.example trixie-backports/main amd64 Packages
linux-source-7.4 | 7.4~rc2-1~exp1 | http://m.example rc-buggy/main amd64 Packages
"""


def test_sites_are_debians_own() -> None:
    assert apt.parse_sites(URIS, "bookworm") == ["http://m.example/debian"]


def test_no_site_for_another_release() -> None:
    assert apt.parse_sites(URIS, "trixie") == []


def test_madison_lines() -> None:
    found = apt.parse_madison(MADISON)
    assert len(found) == 5
    assert found[1] == Candidate("linux-source-6.12", "6.12.95-1~bpo12+1", "bookworm-backports")


def test_newest_release_wins_over_candidate_and_old() -> None:
    chosen = apt.choose(apt.parse_madison(MADISON), (6, 19))
    assert chosen == Candidate("linux-source-7.3", "7.3.4-1~bpo13+1", "trixie-backports")


def test_release_candidate_when_nothing_else_fits() -> None:
    chosen = apt.choose(apt.parse_madison(MADISON), (7, 4))
    assert chosen is not None
    assert chosen.is_release_candidate


def test_nothing_fits() -> None:
    assert apt.choose(apt.parse_madison(MADISON), (8, 0)) is None


def test_order_is_dpkgs_and_not_the_alphabets() -> None:
    versions = ["7.2.9-1", "7.2.13-1~bpo13+1", "7.2.13-1", "7.10~rc1-1~exp1"]
    chosen = apt.choose([Candidate("linux-source", v, "s") for v in versions], (6, 19))
    assert chosen is not None
    assert chosen.version == "7.2.13-1"


def test_suites_by_codename_with_their_backports() -> None:
    releases = {"bookworm": "bookworm", "stable": "trixie", "testing": "forky"}
    suites = apt.candidate_suites(releases | {"unstable": "sid", "experimental": "rc-buggy"})
    assert "trixie-backports" in suites
    assert "sid" in suites
    assert "sid-backports" not in suites
    assert "rc-buggy-backports" not in suites


def test_machine_on_stable_asks_once() -> None:
    suites = apt.candidate_suites({"trixie": "trixie", "stable": "trixie"})
    assert suites == ["trixie", "trixie-backports"]


def test_codename_of_a_release_file() -> None:
    text = "-----BEGIN PGP SIGNED MESSAGE-----\n\nOrigin: Debian\nSuite: stable\nCodename: trixie\n"
    assert apt.parse_codename(text) == "trixie"
    assert apt.parse_codename("Suite: stable\n") is None


def test_os_codename() -> None:
    assert apt.os_codename('ID=debian\nVERSION_CODENAME="trixie"\n') == "trixie"


@pytest.mark.parametrize("text", ["ID=fedora\nVERSION_CODENAME=x\n", "ID=debian\n", ""])
def test_not_a_debian_release(text: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        apt.os_codename(text)
    assert caught.value.status == 4


def test_kept_settings_reach_the_mirror_but_run_no_hook() -> None:
    dump = (
        'Acquire::http::Proxy "http://proxy.example:3128";\n'
        'Acquire "";\n'
        'Acquire::IndexTargets::deb::DEP-11::MetaKey "x";\n'
        'Acquire::Languages "de";\n'
        'APT::Update::Post-Invoke:: "rm -f /var/cache/apt/archives/*.deb";\n'
    )
    assert apt.kept_settings(dump) == 'Acquire::http::Proxy "http://proxy.example:3128";\n'


def test_mirror_that_does_not_answer_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which("apt-get") or not apt.KEYRING.exists():
        pytest.skip("no apt here")
    codename = apt.os_codename(Path("/etc/os-release").read_text(encoding="utf-8"))
    real = proc.run

    def run(argv: Sequence[str], **options: Any) -> proc.Completed:
        if "--print-uris" in argv:
            uri = f"'http://127.0.0.1:9/debian/dists/{codename}/InRelease' x 0"
            return proc.Completed(0, uri, 0.0)
        return real(argv, **options)

    monkeypatch.setattr("nodrop.kernel.apt.proc.run", run)
    with pytest.raises(NodropError, match=r"None of .* answers: http://127.0.0.1:9/debian"):
        apt.PrivateApt(tmp_path, "^linux-source-[0-9.]+$").update()


def test_machine_without_a_mirror_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which("apt-get"):
        pytest.skip("no apt here")
    monkeypatch.setattr(
        "nodrop.kernel.apt.proc.run", lambda *_args, **_options: proc.Completed(0, "", 0.0)
    )
    with pytest.raises(NodropError, match="names no mirror"):
        apt.PrivateApt(tmp_path, "^x$").update()
