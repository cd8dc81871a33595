# SPDX-License-Identifier: GPL-2.0-only
"""Layers over a Debian root: the files that a command changed there, packed as an image.

The command runs in a chroot on this machine's kernel, at full speed. It sees the root and the
shared directories, nothing else of this machine, and has no network.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.kernel import cache
from lab.roots import Root, make_image
from nodrop import proc
from nodrop.errors import NodropError

IN_ROOT = Path(__file__).with_name("in-root")
LAYER_TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Layer:
    """The files that a command changed in a root.

    Attributes:
        image: them as a squashfs image, to boot from.
        files: them as an overlay's upper directory, to add layers to.
        key: a digest of all inputs.
    """

    image: Path
    files: Path
    key: str


def run_in(
    root: Root,
    argv: Sequence[str],
    *,
    upper: Path,
    over: Layer | None = None,
    share: Sequence[Path] = (),
    env: Mapping[str, str] | None = None,
    timeout: float = LAYER_TIMEOUT_S,
) -> proc.Completed:
    """Run a command in a root; its writes go to ``upper``.

    Args:
        upper: an existing directory, possibly with an earlier command's writes.
        over: a layer between the root and ``upper``.
        share: directories of this machine, visible at the same paths, read-only.
        env: the command's environment besides PATH, HOME, LANG and DEBIAN_FRONTEND.
        timeout: seconds.

    Raises:
        NodropError: it exceeded the timeout or could not be started.
    """
    lower = f"{over.files}:{root.path}" if over else str(root.path)
    with tempfile.TemporaryDirectory(prefix=".work-", dir=upper.parent) as work:
        command = [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--uts", "--ipc"),
            *("/bin/sh", str(IN_ROOT), lower, str(upper), work),
            *(str(len(share)), *(str(folder.resolve()) for folder in share)),
            *argv,
        ]
        own = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
        }
        return proc.run(command, timeout=timeout, env=own | dict(env or {}))


def ensure_layer(
    root: Root,
    script: str,
    *,
    inputs: Sequence[object] = (),
    over: Layer | None = None,
    share: Sequence[Path] = (),
) -> Layer:
    """Return the layer that a shell script makes of a root; the script runs once.

    Args:
        script: for sh; exit status 0 if the layer is good.
        inputs: whatever else the layer depends on, as values that JSON can hold.
        over: a layer that the script builds on.
        share: as for :func:`run_in`.

    Raises:
        NodropError: the script failed; the hint is the end of its output.
    """
    key = cache.digest(root.key, over.key if over else "", script, list(inputs))

    def make(temporary: Path, _final: Path) -> None:
        files = temporary / "files"
        files.mkdir()
        result = run_in(root, ["sh", "-euc", script], upper=files, over=over, share=share)
        if result.status != 0:
            hint = proc.tail(result.output, 40)
            raise NodropError("Cannot build a layer of the Debian root.", hint)
        (temporary / "log").write_text(result.output, encoding="utf-8")
        make_image(files, temporary / "layer.squashfs")

    entry = cache.Cache("layers", keep=40).get(key, make)
    return Layer(entry / "layer.squashfs", entry / "files", key)
