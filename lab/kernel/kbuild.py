# SPDX-License-Identifier: GPL-2.0-only
"""Builds the lab's UML kernel: a minimal configuration, cached by a digest of all inputs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab.kernel import cache, kconfig
from lab.kernel.source import Source, ensure_patched, ensure_source, fingerprint
from nodrop import proc
from nodrop.errors import NodropError
from nodrop.progress import Progress

CONFIG_TIMEOUT_S = 180.0
BUILD_TIMEOUT_S = 3600.0
NICE = "0" if os.environ.get("CI") else "19"

KEEP = 2 * len(kconfig.FLAVOURS)
"""How many kernels the cache keeps: one of each flavour, for two branches."""

IPIMASK = Path(__file__).with_name("ipimask.c")
_IPIMASK_FLAGS = (
    *("-std=gnu2x", "-O2", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"),
    *("-shared", "-fPIC", "-ftls-model=initial-exec"),
)

_RECIPE = 1
_TOOLS = (
    ("gcc", "gcc"),
    ("ld", "binutils"),
    ("make", "make"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
)
_OBJECT = re.compile(r"^\s+(?:CC|AS|AR|LD|HOSTCC)\b")
# Settings of the caller that must not reach a kernel build.
_LEAKS = re.compile(
    r"^(?:MAKE(?:FLAGS|LEVEL|OVERRIDES)|MFLAGS|ARCH|O|V|M|MO|C|W|KSRC|KOBJ|OUT"
    r"|CROSS_COMPILE|LOCALVERSION|KBUILD_.*|KCONFIG_.*|[CH]?CFLAGS|LDFLAGS|CC)$"
)


@dataclass(frozen=True)
class Kernel:
    """A kernel to boot and to build modules for.

    Attributes:
        linux: the UML program.
        release: as in ``uname -r``.
        source: its source tree (KSRC), never written to.
        objtree: its object tree (KOBJ).
        build_id: digest of all inputs; equal ids, equal kernels.
        package: Debian package, version and suite of the source.
        arguments: further arguments of its command line.
        preload: a library to start UML with (LD_PRELOAD); None: none.
        patches: directories of the patches in its source, from the repository's root.
    """

    linux: Path
    release: str
    source: Path
    objtree: Path
    build_id: str
    package: str
    arguments: tuple[str, ...] = ()
    preload: Path | None = None
    patches: tuple[str, ...] = ()


def build_environment() -> dict[str, str]:
    """Return this process's environment without variables that change a kernel build."""
    env = {name: value for name, value in os.environ.items() if not _LEAKS.match(name)}
    return env | {
        "LC_ALL": "C",
        # The same input gives the same binary.
        "KBUILD_BUILD_TIMESTAMP": "1970-01-01",
        "KBUILD_BUILD_USER": "nodrop",
        "KBUILD_BUILD_HOST": "lab",
    }


def make(
    arguments: list[str],
    *,
    what: str,
    scratch: Path,
    timeout: float = BUILD_TIMEOUT_S,
    log: Path | None = None,
    on_line: Callable[[str], None] | None = None,
) -> None:
    """Run make on all CPUs, at nice 19 except in CI.

    Args:
        what: the subject of the error message.
        scratch: a directory for the compiler's temporary files, which it leaves if it is killed.
        timeout: seconds.
    """
    result = proc.run(
        ["nice", "-n", NICE, "make", f"-j{os.cpu_count() or 1}", *arguments],
        timeout=timeout,
        env=build_environment() | {"TMPDIR": str(scratch)},
        log=log,
        on_line=on_line,
        keep=4000,
    )
    if result.status != 0:
        if "No space left on device" in result.output:
            raise cache.full(cache.root())
        raise NodropError(f"{what} failed to build.", _errors(result.output))


def _errors(output: str) -> str:
    """Return the part of a build's output that shows the first error."""
    lines = output.splitlines()
    telling = [at for at, line in enumerate(lines) if re.search(r"\berror\b|Error \d|\*\*\*", line)]
    first = max(telling[0] - 3, 0) if telling else max(len(lines) - proc.TAIL_LINES, 0)
    return "\n".join(lines[first : first + proc.TAIL_LINES])


def toolchain() -> str:
    """Return the versions of the compiler and the linker."""
    for tool, package in _TOOLS:
        proc.require(tool, package)
    versions = [proc.run([tool, "--version"], timeout=30.0) for tool in ("gcc", "ld")]
    return "; ".join(result.output.splitlines()[0] for result in versions)


def ensure_kernel(progress: Progress, flavour: str = "perf") -> Kernel:
    """Return a kernel of the given flavour, built if the cache has none.

    Args:
        flavour: a key of kconfig.FLAVOURS: ``"perf"`` for benchmarks; ``"debug"`` (locks),
            ``"kasan"`` (memory) or ``"kcsan-uml"`` (data races) for tests.

    Raises:
        UsageError: there is no such flavour.
        NodropError: a tool is missing, or fetching the source or the build failed.
        UnsupportedError: this machine's mirror has no kernel that is new enough.
    """
    tools = toolchain()
    row = kconfig.flavour_of(flavour)
    wanted = kconfig.parse(kconfig.fragments(*row.fragments))
    folders = row.patches
    source = ensure_patched(ensure_source(progress), folders, progress)
    what = [_RECIPE, source.sha256, wanted, tools]
    build_id = cache.digest(*what, *([fingerprint(folders)] if folders else []))

    def build(temporary: Path, final: Path) -> None:
        _build(source, wanted, temporary, final, progress, flavour)

    # Object trees contain the path of their source.
    name = f"{flavour}-{cache.digest(build_id, str(source.tree))}"
    objtree = cache.Cache("kernels", keep=KEEP).get(name, build) / "obj"
    return Kernel(
        linux=objtree / "linux",
        release=(objtree / "include/config/kernel.release").read_text(encoding="utf-8").strip(),
        source=source.tree,
        objtree=objtree,
        build_id=build_id,
        package=source.package,
        arguments=tuple(row.arguments),
        preload=ensure_ipimask(tools) if row.ipimask else None,
        patches=tuple(folders),
    )


def _build(
    source: Source,
    wanted: dict[str, str],
    temporary: Path,
    final: Path,
    progress: Progress,
    flavour: str,
) -> None:
    objtree = temporary / "obj"
    objtree.mkdir()
    fragment = temporary / "wanted.config"
    fragment.write_text(kconfig.render(wanted), encoding="utf-8")
    common = ["-C", str(source.tree), "ARCH=um", f"O={objtree}"]
    with progress.step(f"Configure the {flavour} kernel"):
        make(
            [*common, f"KCONFIG_ALLCONFIG={fragment}", "allnoconfig"],
            what="The kernel's configuration",
            scratch=temporary,
            timeout=CONFIG_TIMEOUT_S,
        )
        kconfig.check(wanted, (objtree / ".config").read_text(encoding="utf-8"))
    with progress.step(f"Build the {flavour} kernel") as step:
        count = 0

        def on_line(line: str) -> None:
            nonlocal count
            if _OBJECT.match(line):
                count += 1
                step.update(f"{count} files")

        make(
            [*common, "linux", "modules"],
            what="The kernel",
            scratch=temporary,
            log=temporary / "build.log",
            on_line=on_line,
        )
        _prune(objtree)
        _relocate(objtree, final / "obj")


def _prune(objtree: Path) -> None:
    """Remove what neither booting nor building modules needs."""
    for path in objtree.rglob("*"):
        inside = path.relative_to(objtree).parts[0]
        if inside == "scripts" or path.is_dir() or path.is_symlink():
            continue
        if path.suffix in {".o", ".a", ".cmd"} or path.name.startswith(".tmp_"):
            path.unlink()
    for name in ("vmlinux", "vmlinux.unstripped"):
        (objtree / name).unlink(missing_ok=True)


def _relocate(objtree: Path, final: Path) -> None:
    makefile = objtree / "Makefile"
    text = makefile.read_text(encoding="utf-8")
    makefile.write_text(text.replace(str(objtree), str(final)), encoding="utf-8")


def ensure_ipimask(tools: str) -> Path:
    """Return a library to preload that saves UML two system calls for each lock (ipimask.c).

    Args:
        tools: version of the compiler.
    """
    text = IPIMASK.read_text(encoding="utf-8")

    def build(temporary: Path, _final: Path) -> None:
        library = temporary / "ipimask.so"
        command = ["gcc", *_IPIMASK_FLAGS, "-o", str(library), str(IPIMASK)]
        result = proc.run(command, timeout=CONFIG_TIMEOUT_S)
        if result.status != 0:
            raise NodropError(f"{IPIMASK.name} failed to build.", result.output)

    key = cache.digest(text, _IPIMASK_FLAGS, tools)
    return cache.Cache("preload", keep=4).get(key, build) / "ipimask.so"
