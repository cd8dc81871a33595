# SPDX-License-Identifier: GPL-2.0-only
"""Runs the command as people do; no run may end in a traceback, and JSON has to fit its schema."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from harness import SEND_TIMEOUT, THERE, check, equal
from schema import validate

from nodrop.guest.command import in_netns
from nodrop.guest.slow import patience
from nodrop.streams import CLOSED

REPOSITORY = Path(__file__).resolve().parents[3]
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "--")
BUGS = ("Traceback", "Exception ignored", "a mistake in nodrop")
"""What no user may ever read."""
RUN_TIMEOUT_S = patience(30.0)


def _install() -> Path:
    """Copy the command to where every user may read it, as a package does."""
    place = Path(tempfile.mkdtemp(prefix="nodrop-command-"))
    atexit.register(shutil.rmtree, place)
    place.chmod(0o755)
    nothing_built = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "nodrop", place / "nodrop", ignore=nothing_built)
    (place / "kmod").mkdir()
    shutil.copy(REPOSITORY / "kmod/VERSION", place / "kmod")
    return place


PLACE = _install()


@dataclass(frozen=True)
class Said:
    """What a run of the command left.

    Attributes:
        status: its exit status.
        out: stdout.
        err: stderr.
    """

    status: int
    out: str
    err: str

    @property
    def data(self) -> dict[str, Any]:
        """The JSON object that it printed, which fits the command's schema."""
        return checked(self.out)

    def device(self, name: str, netns: str | None = None) -> dict[str, Any]:
        """One of the devices that it printed.

        Args:
            netns: its namespace; None: that of the command.
        """
        found: list[dict[str, Any]] = [
            one for one in self.data["devices"] if (one["name"], one["netns"]) == (name, netns)
        ]
        names = [(one["netns"], one["name"]) for one in self.data["devices"]]
        equal(len(found), 1, f"devices {name} in {netns or 'this namespace'} among {names}")
        return found[0]


def checked(text: str) -> dict[str, Any]:
    """Return a JSON object that the command printed, which fits the schema of its command."""
    data: dict[str, Any] = json.loads(text)
    equal(data["schema"], 1, "the schema's number")
    validate(data["command"], data)
    return data


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a run: the copied command, compiled once."""
    return {**os.environ, "PYTHONPATH": str(PLACE), "PYTHONDONTWRITEBYTECODE": "", **(more or {})}


def words(*arguments: str, user: Sequence[str] = (), netns: str | None = None) -> list[str]:
    """The words of a run; see :func:`nodrop`."""
    return in_netns(netns, [*user, sys.executable, "-m", "nodrop", *arguments])


def nodrop(
    *arguments: str,
    status: int | Sequence[int] = 0,
    user: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Said:
    """Run the command to its end.

    Args:
        status: the exit status that it must have, or one of several.
        user: words that make it another user's, such as NOBODY.
        env: more environment.
    """
    start = time.monotonic()
    done = subprocess.run(
        words(*arguments, user=user),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        env=environment(env),
        cwd="/",
        check=False,
    )
    said = Said(done.returncode, done.stdout, done.stderr)
    line = f"nodrop {' '.join(arguments)}"
    print(f"# {line}: {time.monotonic() - start:.1f} s", flush=True)
    tidy(said, line)
    wanted = (status,) if isinstance(status, int) else status
    check(
        said.status in wanted,
        f"'{line}' ended with {said.status}, wanted {wanted}: {said.err[-500:]}",
    )
    return said


def tidy(said: Said, line: str) -> None:
    """Fail unless a run said nothing that only a programmer understands."""
    for text in (said.out, said.err):
        for words_ in BUGS:
            check(words_ not in text, f"'{line}': {text[-2000:]}")
    check(said.status in (0, 1, 2, 3, 4, CLOSED, 130), f"'{line}' ended with {said.status}")


class Bursts:
    """Sends bursts of datagrams until the block ends, and leaves time for others in between."""

    def __init__(self, packets: int = 100, pause_s: float = 0.05) -> None:
        self._packets = packets
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Bursts:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(patience(5))

    def _run(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, SEND_TIMEOUT)
            while not self._stop.wait(self._pause_s):
                for _ in range(self._packets):
                    try:
                        sock.sendto(bytes(64), (THERE, 1000))
                    except BlockingIOError:
                        break
