# SPDX-License-Identifier: GPL-2.0-only
"""A Debian root with a writable layer, and commands in it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

# Mounts live as long as the command: nothing has to be undone.
_ENTER = """
mount -t overlay overlay -o lowerdir="$1",upperdir="$2/upper",workdir="$2/work" "$2/root" &&
mount -t proc proc "$2/root/proc" && mount -t tmpfs tmpfs "$2/root/tmp" &&
mkdir -p "$2/root/nodrop" && mount --bind "$3" "$2/root/nodrop" &&
mount -o remount,bind,ro "$2/root/nodrop" &&
exec chroot "$2/root" bash -c "$4"
"""


@dataclass(frozen=True)
class Root:
    """One Debian root, with a layer that keeps what commands change.

    Attributes:
        lower: the root itself; stays as it is.
        layer: a folder for the changes, on a file system that can hold an overlay's.
    """

    lower: Path
    layer: Path

    def make(self) -> None:
        """Make the folders of the layer."""
        for name in ("upper", "work", "root"):
            (self.layer / name).mkdir(parents=True)

    def remove(self) -> None:
        """Remove the layer."""
        shutil.rmtree(self.layer, ignore_errors=True)

    def run(self, script: str, timeout_s: float = 400) -> subprocess.CompletedProcess[str]:
        """Run a script of bash in the root; the repository is at /nodrop there.

        Network, processes and the clock are this machine's. Ends all when time is up.
        """
        command = ["timeout", "-k", "5", str(timeout_s), "unshare", "--mount", "--fork", "--pid"]
        command += ["--kill-child", "sh", "-c", _ENTER, "sh"]
        command += [str(self.lower), str(self.layer), str(REPOSITORY), script]
        return subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )

    def succeed(self, script: str, timeout_s: float = 400) -> str:
        """Run a script that must succeed and return what it printed."""
        done = self.run(f"set -e; {script}", timeout_s)
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def module(self, kernel: str, name: str) -> str:
        """Return the file that a kernel finds for a module."""
        return self.succeed(f"modinfo -k {kernel} -n {name}").strip()
