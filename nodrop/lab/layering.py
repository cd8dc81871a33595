# SPDX-License-Identifier: GPL-2.0-only
"""Layers over a Debian root: what a command changed in it, packed as an image.

The command runs on this machine's kernel at full speed, in the root's files, seeing none of
the machine's own but the folders it is given; it has no network.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nodrop import proc
from nodrop.errors import NodropError
from nodrop.kernel import cache
from nodrop.lab.roots import Root, make_image

IN_ROOT = Path(__file__).with_name("in-root")
LAYER_TIMEOUT_S = 900.0


def run_in(
    root: Root,
    argv: Sequence[str],
    *,
    upper: Path,
    share: Sequence[Path] = (),
    env: Mapping[str, str] | None = None,
    timeout: float = LAYER_TIMEOUT_S,
    on_line: Callable[[str], None] | None = None,
) -> proc.Completed:
    """Run a command in a root; what it writes goes to ``upper``.

    Args:
        upper: an existing directory; with what an earlier command wrote there, if any.
        share: folders of the machine, seen at the same paths, read-only.
        env: the command's environment besides PATH and HOME.
        timeout: seconds.

    Raises:
        NodropError: it did not end in time or could not be started.
    """
    with tempfile.TemporaryDirectory(prefix=".work-", dir=upper.parent) as work:
        command = [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--uts", "--ipc"),
            *("/bin/sh", str(IN_ROOT), str(root.path), str(upper), work),
            *(str(len(share)), *(str(folder.resolve()) for folder in share)),
            *argv,
        ]
        own = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
        }
        return proc.run(command, timeout=timeout, env=own | dict(env or {}), on_line=on_line)


def ensure_layer(
    root: Root, script: str, *, inputs: Sequence[object], share: Sequence[Path] = ()
) -> Path:
    """Return the image of what a shell script changes in a root; made once.

    Args:
        script: for sh; ends with 0 when the layer is good.
        inputs: all that the layer depends on besides root and script, as JSON can hold it.
        share: as for :func:`run_in`.

    Raises:
        NodropError: the script failed; with the end of what it said.
    """
    key = cache.digest(root.key, script, list(inputs))

    def make(temporary: Path, _final: Path) -> None:
        upper = temporary / "upper"
        upper.mkdir()
        result = run_in(root, ["sh", "-euc", script], upper=upper, share=share)
        if result.status != 0:
            raise NodropError("A layer over the Debian root failed.", proc.tail(result.output, 40))
        (temporary / "log").write_text(result.output, encoding="utf-8")
        make_image(upper, temporary / "layer.squashfs")
        shutil.rmtree(upper)

    return cache.Cache("layers", keep=12).get(key, make) / "layer.squashfs"


def log_of(layer: Path) -> str:
    """Return what a layer's script said."""
    return (layer.parent / "log").read_text(encoding="utf-8")
