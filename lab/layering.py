# SPDX-License-Identifier: GPL-2.0-only
"""Layers over a Debian root: what a command changed in it, packed as an image.

The command runs on this machine's kernel at full speed, in the root's files, seeing none of
the machine's own but the folders it is given; it has no network.
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
    """What a command changed in a root.

    Attributes:
        image: as a squashfs image, to boot from.
        files: as an overlay's upper directory, to lay more over it.
        key: names all that went into it.
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
    """Run a command in a root; what it writes goes to ``upper``.

    Args:
        upper: an existing directory; with what an earlier command wrote there, if any.
        over: a layer between the root and ``upper``.
        share: folders of the machine, seen at the same paths, read-only.
        env: the command's environment besides PATH and HOME.
        timeout: seconds.

    Raises:
        NodropError: it did not end in time or could not be started.
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
    """Return what a shell script changes in a root; it runs once.

    Args:
        script: for sh; ends with 0 when the layer is good.
        inputs: all that the layer depends on besides the other arguments, as JSON can hold it.
        over: a layer that the script finds already there.
        share: as for :func:`run_in`.

    Raises:
        NodropError: the script failed; with the end of what it said.
    """
    key = cache.digest(root.key, over.key if over else "", script, list(inputs))

    def make(temporary: Path, _final: Path) -> None:
        files = temporary / "files"
        files.mkdir()
        result = run_in(root, ["sh", "-euc", script], upper=files, over=over, share=share)
        if result.status != 0:
            raise NodropError("A layer over the Debian root failed.", proc.tail(result.output, 40))
        (temporary / "log").write_text(result.output, encoding="utf-8")
        make_image(files, temporary / "layer.squashfs")

    entry = cache.Cache("layers", keep=40).get(key, make)
    return Layer(entry / "layer.squashfs", entry / "files", key)
