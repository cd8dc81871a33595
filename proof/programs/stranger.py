# SPDX-License-Identifier: GPL-2.0-only
"""An ordinary user, root in namespaces of his own, who runs parts of a test program.

The program is started again as ``PROGRAM PART WORDS``, by nobody. What a part finds out it
tells in lines of JSON on stdout; it goes on when the program says so, by a line on stdin.
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

from lab.guest.timing import time_limit

NOBODY = 65534
UNSHARE = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
FOR_EVERYBODY = ("/dev/net/tun", "/dev/vhost-net")
Part = Callable[..., None]


class Stranger:
    """A process of nobody that runs a part; a context manager that kills it in the end.

    Args:
        part: a function that the program named in parts().
        words: its arguments; it gets them as text.
    """

    def __init__(self, part: Part, *words: object) -> None:
        self._argv = [*UNSHARE, sys.executable, str(Path(sys.argv[0]).resolve()), part.__name__]
        self._argv += [str(word) for word in words]

    def __enter__(self) -> Self:
        _namespaces_allowed()
        for name in FOR_EVERYBODY:
            # As udev has it on Debian; vhost-net there is for the group kvm.
            if Path(name).exists():
                Path(name).chmod(0o666)
        self._process = _nobody(self._argv)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(time_limit(10))
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    @property
    def pid(self) -> int:
        """The process, and so its namespaces."""
        return self._process.pid

    def kill(self) -> None:
        """End it in the middle of things, and its namespaces with it."""
        self._process.kill()

    def heard(self, timeout: float = 20.0) -> dict[str, Any]:
        """Return what it tells next; fails the case when it says nothing in time, or ends."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], time_limit(timeout))
        line = self._process.stdout.readline() if ready else b""
        if not line:
            state = "has ended" if ready else f"says nothing for {timeout:g} s"
            raise AssertionError(f"the stranger {state}")
        found = json.loads(line)
        assert isinstance(found, dict), found
        return found

    def go(self) -> None:
        """Let it go on from wait()."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")


def _nobody(argv: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        # Not where the administrator works, which may be closed to others.
        cwd="/",
    )


def _namespaces_allowed() -> None:
    with _nobody([*UNSHARE, "true"]) as process:
        process.communicate(timeout=time_limit(10))
    if process.returncode:
        raise Skip("ordinary users may not have namespaces here")


def parts(*functions: Part) -> None:
    """Run the part that the command line names, if it names one, and end."""
    if len(sys.argv) > 1:
        {function.__name__: function for function in functions}[sys.argv[1]](*sys.argv[2:])
        sys.exit(0)


def tell(**found: object) -> None:
    """Tell the program, from a part."""
    print(json.dumps(found), flush=True)


def wait() -> None:
    """Wait until the program says go(), in a part; end with it."""
    if not sys.stdin.readline():
        sys.exit(0)


def open_programs() -> None:
    """Let strangers run the traffic programs, which may be where root alone may look."""
    place = Path("/run/nodrop-programs")
    if not place.exists():
        shutil.copytree(os.environ["NODROP_BIN"], place)
        place.chmod(0o755)
    os.environ["NODROP_BIN"] = str(place)


def silence() -> None:
    """Let the kernel send nothing by itself in the part's own namespace."""
    for name in ("all", "default"):
        knob = Path("/proc/sys/net/ipv6/conf", name, "disable_ipv6")
        if knob.exists():
            knob.write_text("1")
