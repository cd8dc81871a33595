# SPDX-License-Identifier: GPL-2.0-only
"""Run parts of a test program as an unprivileged user, root in namespaces of its own.

The program starts itself again as ``PROGRAM PART WORDS``, as user nobody. A part reports in lines
of JSON on stdout, and waits for a line on stdin where the program has to resume it.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from harness import Skip

from guestlib.timing import time_limit

NOBODY = 65534
UNSHARE = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
WORLD_WRITABLE = ("/dev/net/tun", "/dev/vhost-net")
Part = Callable[..., None]


class Unprivileged:
    """A process of user nobody that runs a part; a context manager, which kills it.

    Args:
        part: one of the functions given to parts().
        words: its arguments, passed as strings.
    """

    def __init__(self, part: Part, *words: object) -> None:
        self._argv = [*UNSHARE, sys.executable, str(Path(sys.argv[0]).resolve()), part.__name__]
        self._argv += [str(word) for word in words]

    def __enter__(self) -> Self:
        _namespaces_allowed()
        for name in WORLD_WRITABLE:
            # As with Debian's udev rules, except that vhost-net's group is kvm there.
            if Path(name).exists():
                Path(name).chmod(0o666)
        self._process = _as_nobody(self._argv)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(time_limit(10))
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    @property
    def pid(self) -> int:
        """The process's pid, which also names its namespaces."""
        return self._process.pid

    def kill(self) -> None:
        """Kill it, and so its namespaces."""
        self._process.kill()

    def next_report(self, timeout: float = 20.0) -> dict[str, Any]:
        """Return its next report; fail the case if it has ended or the time is over."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], time_limit(timeout))
        line = self._process.stdout.readline() if ready else b""
        if not line:
            state = "has ended" if ready else f"reports nothing for {timeout:g} s"
            raise AssertionError(f"the unprivileged process {state}")
        found = json.loads(line)
        assert isinstance(found, dict), found
        return found

    def resume(self) -> None:
        """Make it return from wait_for_resume()."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")


def _as_nobody(argv: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        # The current directory may be inaccessible to others.
        cwd="/",
    )


def _namespaces_allowed() -> None:
    with _as_nobody([*UNSHARE, "true"]) as process:
        process.communicate(timeout=time_limit(10))
    if process.returncode:
        raise Skip("unprivileged user namespaces are disabled here")


def parts(*functions: Part) -> None:
    """If the command line names a part, run it and exit."""
    if len(sys.argv) > 1:
        {function.__name__: function for function in functions}[sys.argv[1]](*sys.argv[2:])
        sys.exit(0)


def report(**found: object) -> None:
    """Send a report from a part to the program."""
    print(json.dumps(found), flush=True)


def wait_for_resume() -> None:
    """Block a part until the program calls resume(); exit if the program has ended."""
    if not sys.stdin.readline():
        sys.exit(0)


def open_programs() -> None:
    """Copy the traffic programs to a folder that all users can read."""
    place = Path("/run/nodrop-programs")
    if not place.exists():
        shutil.copytree(os.environ["NODROP_BIN"], place)
        place.chmod(0o755)
    os.environ["NODROP_BIN"] = str(place)


def disable_ipv6() -> None:
    """Disable IPv6 in the part's namespace, so that the kernel sends no packets of its own."""
    for name in ("all", "default"):
        knob = Path("/proc/sys/net/ipv6/conf", name, "disable_ipv6")
        if knob.exists():
            knob.write_text("1")
