# SPDX-License-Identifier: GPL-2.0-only
"""Finds and fetches a package in any suite of this machine's Debian mirror.

It uses an apt state of its own in one directory, so this machine's sources, lists and packages stay
unchanged. Mirror, proxies and credentials are those of this machine's apt; signatures are checked
against Debian's archive keys.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodrop import proc
from nodrop.errors import NodropError, UnsupportedError

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
UPDATE_TIMEOUT_S = 300.0
DOWNLOAD_TIMEOUT_S = 900.0
QUERY_TIMEOUT_S = 60.0

_INRELEASE = re.compile(r"^'(\S+?)/dists/([^/']+)/InRelease'")
_MADISON = re.compile(r"^\s*(\S+)\s*\|\s*(\S+)\s*\|\s*\S+\s+([^/\s]+)/(\S+)\s")
_UPSTREAM = re.compile(r"^(?:\d+:)?(\d+(?:\.\d+)*)")
_CANDIDATE_RELEASE = re.compile(r"~rc\d+")


@dataclass(frozen=True)
class Candidate:
    package: str
    version: str
    suite: str

    @property
    def upstream(self) -> tuple[int, ...]:
        """The numbers of the upstream version; empty if it does not start with one."""
        match = _UPSTREAM.match(self.version)
        return tuple(int(part) for part in match[1].split(".")) if match else ()


def parse_suites(uris: str, codename: str) -> list[tuple[str, str]]:
    """Return site and suite of each source in the output of ``apt-get update --print-uris``.

    Args:
        uris: the output.
        codename: of this machine's release; replaces "stable" in the result.
    """
    matches = (_INRELEASE.match(line) for line in uris.splitlines())
    return [(m[1], re.sub(r"^stable\b", codename, m[2])) for m in matches if m]


def configured() -> tuple[str, list[tuple[str, str]]]:
    """Return this machine's codename, and site and suite of each source of its apt.

    Raises:
        NodropError: there is no apt, or it has no mirror of this release.
    """
    proc.require("apt-get", "apt")
    codename = os_codename(Path("/etc/os-release").read_text(encoding="utf-8"))
    uris = proc.run(["apt-get", "update", "--print-uris"], timeout=QUERY_TIMEOUT_S).output
    suites = parse_suites(uris, codename)
    if codename not in (suite for _, suite in suites):
        raise NodropError(
            f"This machine's apt has no mirror of Debian {codename}.",
            "Add one to /etc/apt/sources.list.d; 'apt-get update --print-uris' lists them.",
        )
    return codename, suites


def parse_madison(text: str) -> list[Candidate]:
    matches = (_MADISON.match(line) for line in text.splitlines())
    return [Candidate(m[1], m[2], m[3]) for m in matches if m]


def moving_suites(codename: str) -> list[str]:
    """Return this machine's release and the moving names of all later ones."""
    return [codename, "stable", "testing", "unstable", "experimental"]


def candidate_suites(releases: Mapping[str, str]) -> list[str]:
    """Return the suites to search: each release by its codename, and its backports.

    A mirror may serve older lists under a moving name than under the codename.

    Args:
        releases: moving name -> codename, from the release files of ``moving_suites``.
    """
    suites: list[str] = []
    for suite, codename in releases.items():
        # Mirrors rarely carry experimental under its codename.
        suites.append(suite if suite == "experimental" else codename)
        if suite not in ("unstable", "experimental"):
            suites.append(f"{codename}-backports")
    return list(dict.fromkeys(suites))


def parse_codename(release: str) -> str | None:
    """Return the codename in the text of an InRelease file."""
    match = re.search(r"^Codename: (\S+)$", release, re.MULTILINE)
    return match[1] if match else None


def compare_versions(left: str, right: str) -> int:
    """Compare two Debian versions by dpkg's rules: negative, 0 or positive."""
    for operator, result in (("lt", -1), ("gt", 1)):
        command = ["dpkg", "--compare-versions", left, operator, right]
        if proc.run(command, timeout=QUERY_TIMEOUT_S).status == 0:
            return result
    return 0


def choose(candidates: Iterable[Candidate], minimum: tuple[int, ...]) -> Candidate | None:
    """Return the newest candidate that is at least ``minimum``.

    Release candidates count only if there is no released version.
    """
    fit = [c for c in candidates if c.upstream >= minimum]
    released = [c for c in fit if not _CANDIDATE_RELEASE.search(c.version)]
    return max(
        released or fit,
        key=lambda candidate: functools.cmp_to_key(compare_versions)(candidate.version),
        default=None,
    )


def os_codename(text: str) -> str:
    """Return VERSION_CODENAME of an ``os-release`` text.

    Raises:
        UnsupportedError: this is not a Debian release.
    """
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    values = {name: value.strip("\"'") for name, value in fields.items()}
    codename = values.get("VERSION_CODENAME", "")
    if values.get("ID") != "debian" or not codename:
        raise UnsupportedError(
            f"This machine runs {values.get('PRETTY_NAME', 'an unknown system')}.",
            "The lab takes its kernel from a Debian mirror; run it on Debian 12 or newer.",
        )
    return codename


class PrivateApt:
    """A private apt state in a directory.

    Args:
        place: an empty directory.
        package_pattern: a regular expression; which packages to search for.
    """

    def __init__(self, place: Path, package_pattern: str) -> None:
        self.place = place
        self.pattern = package_pattern
        self._env = {**os.environ, "APT_CONFIG": str(place / "apt.conf"), "LC_ALL": "C"}

    def update(self) -> None:
        """Write the configuration and fetch the lists of all candidate suites.

        Suites that the mirror lacks are skipped.

        Raises:
            NodropError: no mirror is configured, or none answers.
            UnsupportedError: this is not a Debian machine.
        """
        codename, suites = configured()
        # Other sites are not Debian's archive.
        sites = list(dict.fromkeys(site for site, suite in suites if suite == codename))
        if not KEYRING.exists():
            raise NodropError(
                f"{KEYRING} is missing, so the mirror's files cannot be verified.",
                "Install it with: apt-get install debian-archive-keyring",
            )
        self._configure()
        moving = moving_suites(codename)
        self._name_suites(sites, moving)
        only_releases = "Acquire::IndexTargets::deb::Packages::DefaultEnabled=false"
        result = self._run("apt-get", "update", "-o", only_releases, timeout=UPDATE_TIMEOUT_S)
        self._name_suites(sites, candidate_suites(self._codenames(moving)))
        result = self._run("apt-get", "update", timeout=UPDATE_TIMEOUT_S)
        if not any((self.place / "lists").glob("*_Packages*")):
            raise NodropError(
                "No Debian mirror of this machine answers: " + ", ".join(sites) + ".",
                "apt printed:\n" + proc.tail(result.output, 8),
            )

    def candidates(self) -> list[Candidate]:
        """Return every version of every package that matches the pattern."""
        found = self._run("apt-cache", "search", "--names-only", self.pattern)
        names = [line.split()[0] for line in found.output.splitlines() if line.strip()]
        if not names:
            return []
        return parse_madison(self._run("apt-cache", "madison", *names).output)

    def download(self, candidate: Candidate) -> Path:
        """Fetch a package, verify it against the signed lists, and return its file."""
        name = f"{candidate.package}={candidate.version}"
        files = self._fetch(name, self.place, "download", name)
        return next(path for path in files if path.name.startswith(f"{candidate.package}_"))

    def download_all(self, candidate: Candidate) -> list[Path]:
        """Fetch a package and all its dependencies, as if nothing were installed.

        Dependencies come from the package's own suite if it has them.
        """
        nothing = self.place / "status"
        nothing.touch()
        name = f"{candidate.package}={candidate.version}"
        options = {
            "APT::Default-Release": candidate.suite,
            "APT::Install-Recommends": "false",
            "Dir::State::status": str(nothing),
            "Debug::NoLocking": "true",
        }
        words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        archives = self.place / "cache" / "archives"
        return self._fetch(name, archives, "install", "--yes", "--download-only", *words, name)

    def _fetch(self, name: str, directory: Path, *words: str) -> list[Path]:
        """Run apt-get; return the packages that are then in a directory."""
        result = self._run("apt-get", *words, timeout=DOWNLOAD_TIMEOUT_S)
        files = sorted(directory.glob("*.deb"))
        if result.status != 0 or not files:
            raise NodropError(
                f"Cannot fetch {name} from the mirror.",
                "apt printed:\n" + proc.tail(result.output, 8),
            )
        return files

    def _run(self, *command: str, timeout: float = QUERY_TIMEOUT_S) -> proc.Completed:
        return proc.run(command, timeout=timeout, env=self._env, cwd=self.place)

    def _name_suites(self, sites: Iterable[str], suites: Sequence[str]) -> None:
        sources = [
            f"deb [signed-by={KEYRING}] {site} {suite} main" for site in sites for suite in suites
        ]
        (self.place / "sources.list").write_text("\n".join(sources) + "\n", encoding="utf-8")

    def _codenames(self, suites: Iterable[str]) -> dict[str, str]:
        """Return suite -> codename for the release files that were fetched."""
        names: dict[str, str] = {}
        for suite in suites:
            for path in (self.place / "lists").glob(f"*_dists_{suite}_InRelease"):
                if codename := parse_codename(path.read_text(encoding="utf-8")):
                    names[suite] = codename
        return names

    def _configure(self) -> None:
        (self.place / "lists" / "partial").mkdir(parents=True)
        (self.place / "cache" / "archives" / "partial").mkdir(parents=True)
        own = {
            # None of this machine's hooks: they would clean and index this machine's own state.
            "Dir::Etc::main": "/dev/null",
            "Dir::Etc::parts": "/dev/null",
            "Dir::Etc::sourcelist": str(self.place / "sources.list"),
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::State::lists": str(self.place / "lists"),
            "Dir::Cache": str(self.place / "cache"),
            "Acquire::Languages": "none",
            "Acquire::GzipIndexes": "true",
            "APT::Architectures": "amd64",
            # apt's unprivileged download user cannot enter root's own cache.
            "APT::Sandbox::User": "root",
        }
        kept = proc.run(["apt-config", "dump"], timeout=QUERY_TIMEOUT_S).output
        text = kept_settings(kept) + render_settings(own)
        (self.place / "apt.conf").write_text(text, encoding="utf-8")


def kept_settings(dump: str) -> str:
    kept = [
        line
        for line in dump.splitlines()
        if line.startswith("Acquire::")
        and not line.startswith(("Acquire::IndexTargets", "Acquire::Languages", "Acquire::Changel"))
        and not line.endswith(' "";')
    ]
    return "".join(f"{line}\n" for line in kept)


def render_settings(settings: Mapping[str, str]) -> str:
    """Return settings in the syntax of apt.conf(5)."""
    return "".join(f'{name} "{value}";\n' for name, value in settings.items())
