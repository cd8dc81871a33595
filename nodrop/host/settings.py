# SPDX-License-Identifier: GPL-2.0-only
"""Settings of devices: the switch of each, kept settings, and defaults.

A kept setting is a udev rule, one line for each name or pattern: udev runs ethtool for each new
device that matches, and nothing for other devices. It only covers the machine's own network
namespace. Defaults are module parameters, now and at the next load. nodrop has two files below
/etc, which it writes atomically, beside those of the administrator, and changes no others.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from nodrop import proc
from nodrop.errors import NodropError, UnsupportedError, UsageError, refused
from nodrop.host import ethtool, modules, netns
from nodrop.host.livepatch import Livepatch
from nodrop.host.rtnetlink import Requests
from nodrop.proc import join

HEAD = "# Made by 'nodrop set', which changes it."
_OPTIONS_LINE = re.compile(
    rf"options (?P<key>(?:{'|'.join(modules.TUNS)}) nodrop(?==[01]$)|nodrop guard_ms)"
    r"=(?P<value>\d+)"
)
RULES_FILE = "etc/udev/rules.d/81-nodrop-set.rules"
OPTIONS_FILE = "etc/modprobe.d/zz-nodrop-set.conf"
"""modprobe reads it last, so that it overrides others."""
LOCK_FILE = "run/nodrop-set.lock"
LOCK_S = 5.0
"""Time limit for the lock, seconds."""
ETHTOOL = "/usr/sbin/ethtool"
RELOAD_TIMEOUT_S = 10.0
MOST_NAME = 15
"""Maximum length of a device's name."""
_NAMES = r"(?:[A-Za-z0-9_.@+*?\[\]-]|(?<=\[)!){1,64}"
"""Of names and patterns. A device whose name contains "!" has another name in udev."""
_RULE = (
    'ACTION=="add|move", SUBSYSTEM=="net", TEST=="tun_flags", TEST=="/sys/module/nodrop", '
    'KERNEL=="{}", RUN+="{} --set-priv-flags $name nodrop {}", '
    'RUN+="{} --set-priv-flags $name nodrop {}"'
)
_RULE_LINE = re.compile(
    re.escape(_RULE)
    .replace(r"\{\}", "{}")
    .format(rf"(?P<pattern>{_NAMES})", r"\S+", "(?:on|off)", r"\S+", "(?P<value>on|off)")
)
NO_NAMES = (".", "..", "default", "all")
"""The kernel gives no device one of these names."""
FLAG = "nodrop"
_SHARED_SWITCH = "All macvtap and ipvtap share one switch: /sys/module/tap/parameters/nodrop."
_INSTALL = "'nodrop livepatch load' patches the running driver; 'nodrop install' replaces it."
_INSTALL_BESIDE = "'nodrop install' installs nodrop's driver beside the built-in one."


def read_lines(file: Path, line: re.Pattern[str]) -> list[re.Match[str]]:
    """Return the matches of the lines below the head; none if there is no file.

    Raises:
        NodropError: the file cannot be read, or has lines that nodrop did not write.
    """
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise file_error(file, error) from error
    head, *lines = text.splitlines() or [""]
    matches = [line.fullmatch(text) for text in lines]
    if head != HEAD or None in matches:
        raise NodropError(
            f"{file} has lines that nodrop did not write.", "Move them into another file."
        )
    return [match for match in matches if match]


def write_command(file: Path, lines: list[str]) -> str:
    """Return the shell command that does the same as :func:`write_lines`."""
    if not lines:
        return join("rm", str(file))
    printed = join("printf", "%s\\n", HEAD, *lines)
    return f"{printed} > {join(str(file))}"


@contextmanager
def locked(file: Path, root: Path) -> Iterator[None]:
    """Lock the file against other nodrop commands.

    Any user may lock what it can open, so only root can open the lock.

    Args:
        root: parent of ``run``, which has the lock.

    Raises:
        NodropError: permission is missing, the file system has no locks, or another command has
            kept the lock for LOCK_S.
    """
    folder, lock = file.parent, root / LOCK_FILE
    end = time.monotonic() + LOCK_S
    with ExitStack() as stack:
        try:
            for made in (folder, lock.parent):
                if not made.is_dir():
                    made.mkdir(parents=True, exist_ok=True)
                    made.chmod(0o755)
            number = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, number)
            while not _try_lock(number):
                if time.monotonic() > end:
                    raise NodropError(
                        f"Another nodrop command has kept {lock} locked for {LOCK_S:g} s.",
                        "Run this again when it has ended.",
                    )
                time.sleep(LOCK_S / 50)
        except OSError as error:
            raise file_error(file, error) from error
        yield


def _try_lock(number: int) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_lines(file: Path, lines: list[str]) -> None:
    """Replace the file by a head and lines; without lines, remove it.

    Raises:
        NodropError: permission is missing; the file is unchanged.
    """
    try:
        if lines:
            replace_file(file, "".join(f"{line}\n" for line in (HEAD, *lines)).encode())
        else:
            file.unlink(missing_ok=True)
    except OSError as error:
        raise file_error(file, error) from error


def replace_file(file: Path, content: bytes) -> None:
    """Replace a file's content atomically; a failure leaves no temporary file.

    Raises:
        OSError: it cannot be written.
    """
    # The name must not end in .prom: Prometheus' collector would read the temporary file.
    number, new = tempfile.mkstemp(prefix=f".{file.name}.", suffix=".tmp", dir=file.parent)
    try:
        with os.fdopen(number, "wb") as made:
            made.write(content)
            made.flush()
            os.fchmod(number, 0o644)
            os.fsync(number)
        Path(new).replace(file)
    except BaseException:
        with suppress(OSError):
            Path(new).unlink()
        raise


def file_error(path: Path, error: OSError) -> NodropError:
    if isinstance(error, PermissionError):
        return refused(f"change {path}", error.errno)
    return NodropError(f"{path} cannot be read or changed: {error.strerror}.")


@dataclass(frozen=True)
class Parameter:
    """A module parameter.

    Attributes:
        modules: names of the module; a kernel has one of them, another may have another.
        usual: built-in value.
    """

    modules: tuple[str, ...]
    name: str
    usual: str


BACKPRESSURE = Parameter(modules.TUNS, "nodrop", "1")
STALL_MS = Parameter(("nodrop",), "guard_ms", "1000")
_BOOL = {"Y": "1", "N": "0"}
"""Boolean values as sysfs prints them."""


class Default:
    """The machine's default.

    Args:
        root: parent of ``sys``, ``etc`` and ``lib``.
        release: kernel release; None: the running kernel's.
    """

    def __init__(
        self, parameter: Parameter, root: Path = Path("/"), release: str | None = None
    ) -> None:
        self._module_parameter = parameter
        self.tun_built_in = modules.tun_built_in(root)
        self._module = parameter.modules[-1 if self.tun_built_in else 0]
        self.parameter = root / "sys/module" / self._module / "parameters" / parameter.name
        self.file = root / OPTIONS_FILE
        self._root, self._release = root, release or os.uname().release
        self._patch = Livepatch(root)

    @property
    def loaded(self) -> str | None:
        """The value in the loaded module; None: there is no such parameter."""
        try:
            text = self.parameter.read_text().strip()
        except OSError:
            return None
        return _BOOL.get(text, text)

    @property
    def next_load(self) -> str:
        """The value at the next load of nodrop's module.

        Raises:
            NodropError: the file for modprobe has other lines than nodrop's.
        """
        return self._read().get(self._key(self._module)) or self._base(self._module)

    @property
    def installed(self) -> bool:
        """Whether the next load of tun takes nodrop's."""
        return modules.installed(self._root, self._release)

    def require(self, value: str) -> None:
        """Check that the default can be set.

        Raises:
            UnsupportedError: nodrop's modules are neither loaded nor installed.
            NodropError: the file for modprobe has other lines than nodrop's.
        """
        forgets = value == self._base(self._module) != self.next_load
        if self._patch.present and self._module_parameter == BACKPRESSURE and not forgets:
            raise UnsupportedError(
                "The livepatch has no default: backpressure is on unless a device is set by name.",
                "Set devices by name, or unload it: 'nodrop livepatch unload'.",
            )
        if self.loaded is None and not self.installed and not forgets:
            raise UnsupportedError(
                "nodrop's modules are neither loaded nor installed for this kernel.",
                "'nodrop install' installs them.",
            )
        self._read()

    def set_loaded(self, value: str) -> None:
        """Set the value in the loaded module.

        Raises:
            NodropError: permission is missing, or the module was unloaded.
        """
        try:
            # Do not create the file if the module was unloaded.
            with self.parameter.open("r+") as file:
                file.write(value)
        except OSError as error:
            raise file_error(self.parameter, error) from error

    def lines(self, value: str) -> list[str]:
        options = self._read()
        for module in self._module_parameter.modules:
            options.pop(self._key(module), None)
            if value != self._base(module):
                options[self._key(module)] = value
        return [f"options {key}={number}" for key, number in options.items()]

    def set_next_load(self, value: str) -> None:
        """Create, replace or remove the file for modprobe atomically.

        Raises:
            NodropError: permission is missing.
        """
        with locked(self.file, self._root):
            write_lines(self.file, self.lines(value))

    def _read(self) -> dict[str, str]:
        return {line["key"]: line["value"] for line in read_lines(self.file, _OPTIONS_LINE)}

    def _key(self, module: str) -> str:
        return f"{module} {self._module_parameter.name}"

    def _base(self, module: str) -> str:
        """Return the value at the next load without nodrop's file: of the administrator's files."""
        value = self._module_parameter.usual
        for file in sorted({*self.file.parent.glob("*.conf")} - {self.file}):
            with suppress(OSError):
                for line in file.read_text(errors="replace").splitlines():
                    options, _, given = line.partition(f" {self._module_parameter.name}=")
                    if options.split()[:2] == ["options", module] and given:
                        word = given.split()[0]
                        value = _BOOL.get(word.upper(), word)
        return value


def is_pattern(name: str) -> bool:
    return bool(re.search(r"[*?\[]", name))


def can_keep(name: str) -> bool:
    """Return whether a setting can be kept for a name or pattern: udev has no others."""
    plain = re.fullmatch(_NAMES, name) and "[[" not in name and name not in NO_NAMES
    return bool(plain and (is_pattern(name) or len(name) <= MOST_NAME))


def matches(pattern: str, name: str) -> bool:
    """Return whether a pattern matches a device in udev."""
    with suppress(re.error):  # Python before 3.10 refuses a range such as [z-a]
        return fnmatchcase(name, pattern)
    return False


def applied(kept: Mapping[str, bool], name: str) -> bool | None:
    """Return the kept setting of a device; None: none."""
    settings = [on for pattern, on in kept.items() if "!" not in name and matches(pattern, name)]
    return settings[-1] if settings else None


def changed(kept: Mapping[str, bool], names: Sequence[str], on: bool | None) -> dict[str, bool]:
    """Return the kept settings after ``names`` were set, as the last ones; None forgets them.

    Raises:
        UsageError: no setting can be kept for a name.
    """
    for name in names if on is not None else ():
        if not can_keep(name):
            raise UsageError(f"No setting can be kept for the name '{name}'.", "Use --now.")
    order = list(kept)
    if on is not None and {*names} <= {*kept}:
        first = min(map(order.index, names))
        if all(kept[name] == on for name in order[first:]):
            return dict(kept)
    others = {name: value for name, value in kept.items() if name not in names}
    return others if on is None else {**others, **dict.fromkeys(names, on)}


def rule(pattern: str, on: bool) -> str:
    """Return the rule for a pattern.

    It sets the opposite value first: ethtool does not set a flag that has the wanted value, and
    the device would continue to follow the default.
    """
    before, value = ("off", "on") if on else ("on", "off")
    return _RULE.format(pattern, ETHTOOL, before, ETHTOOL, value)


def elsewhere(root: Path = Path("/")) -> bool:
    """Return whether this is not the machine's own network namespace, as far as that is known."""
    with suppress(OSError):
        own, first = (os.stat(root / f"proc/{who}/ns/net") for who in ("self", "1"))
        return own.st_ino != first.st_ino
    return False


class Rules:
    """The file with the rules. If several match a device, the last one applies.

    Args:
        root: parent of ``etc``, ``run`` and ``usr``.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.file = root / RULES_FILE
        self._root = root

    def read(self) -> dict[str, bool]:
        """Return the kept settings: pattern -> whether backpressure is on, in the file's order.

        Raises:
            NodropError: the file has other lines than nodrop's.
        """
        kept: dict[str, bool] = {}
        for match in read_lines(self.file, _RULE_LINE):
            kept.pop(match["pattern"], None)
            kept[match["pattern"]] = match["value"] == "on"
        return kept

    def obstacle(self) -> str:
        """Return why no rule is applied: "udev", "netns" or "ethtool"; "": rules are applied."""
        if not (self._root / "run/udev/control").exists():
            return "udev"
        if elsewhere(self._root):
            return "netns"
        return "" if (self._root / ETHTOOL[1:]).exists() else "ethtool"

    @property
    def loaded(self) -> bool:
        """Whether nodrop's core is loaded: rules are only applied then."""
        return (self._root / "sys/module/nodrop").exists()

    def require(self) -> None:
        """Check that kept settings are applied.

        Raises:
            UnsupportedError: udev does not run, or covers another network namespace, or nodrop is
                neither loaded nor installed for this kernel.
            NodropError: ethtool is missing.
        """
        obstacle = self.obstacle()
        if obstacle == "ethtool":
            raise NodropError(
                "ethtool, which applies kept settings, is missing.", "apt install ethtool"
            )
        if obstacle:
            why = "udev only covers the machine's own network namespace."
            if obstacle == "udev":
                why = "udev, which applies kept settings, does not run here."
            raise UnsupportedError(why, "Use --now to set the device without keeping the setting.")
        if not self.loaded and not modules.installed(self._root, os.uname().release):
            raise UnsupportedError(
                "nodrop is neither loaded nor installed for this kernel: the setting would have no "
                "effect.",
                _INSTALL_BESIDE if modules.tun_built_in(self._root) else _INSTALL,
            )

    def lines(self, kept: Mapping[str, bool]) -> list[str]:
        return [rule(pattern, on) for pattern, on in kept.items()]

    def keep(self, names: Sequence[str], on: bool | None) -> None:
        """Change the file atomically, and make udev read it.

        Raises:
            NodropError: permission is missing, or the file has other lines than nodrop's.
        """
        with locked(self.file, self._root):
            write_lines(self.file, self.lines(changed(self.read(), names, on)))
        # By itself, udev checks its files every three seconds.
        if self._root == Path("/"):
            with suppress(NodropError):
                proc.run(["udevadm", "control", "--reload"], timeout=RELOAD_TIMEOUT_S)


@dataclass(frozen=True)
class Switch:
    """The switch of a TUN or TAP device: its private flag "nodrop", if its driver has it.

    Attributes:
        on: whether backpressure is on; None: its driver has no switch.
        asked: whether its application set upstream's flag.
        persistent: whether it outlives its application.
    """

    name: str
    on: bool | None
    asked: bool
    persistent: bool


def device_names(where: str | int | Path | None) -> dict[str, bool]:
    """Return the devices of a network namespace (None: this one) -> whether they are TUN or TAP.

    Raises:
        NodropError: there is no such namespace.
    """

    def here() -> dict[str, bool]:
        with ethtool.Socket() as sock:
            return {name: _is_tun(name, sock) for _, name in socket.if_nameindex()}

    devices: dict[str, bool] = netns.run_inside(where, here)
    return devices


def real_names(where: str | int | Path | None, names: Sequence[str]) -> list[str]:
    """Return these names, those of devices in place of their alternative ones, each once.

    Raises:
        NodropError: there is no such namespace.
    """

    def real(name: str) -> str:
        with suppress(OSError), Requests() as requests:
            return requests.named(name).name
        return name

    named: list[str] = netns.run_inside(where, lambda: list(map(real, names)))
    return list(dict.fromkeys(named))


def read_switches(where: str | int | Path | None, names: Sequence[str]) -> list[Switch]:
    """Return devices of a network namespace (None: this one), in the order of their names.

    Raises:
        NodropError: a device does not exist or is not a TUN or TAP; there is no such namespace.
    """
    switches = netns.run_inside(where, lambda: [asdict(_read_switch(name)) for name in names])
    return [Switch(**switch) for switch in switches]


def turn(where: str | int | Path | None, name: str, on: bool) -> None:
    """Switch a device that has a switch; switching it off wakes blocked senders.

    Raises:
        NodropError: the device was deleted, or permission is missing.
    """
    netns.run_inside(where, lambda: _turn(name, on))


def require_switch(device: Switch, on: bool, default: Default) -> None:
    """Check that a device can be switched as wanted.

    Raises:
        UnsupportedError: its driver has no switch; the hint explains how to get one.
    """
    if device.on is not None or (not on and not device.asked):
        return
    install = _INSTALL_BESIDE if default.tun_built_in else _INSTALL
    if device.asked:
        raise UnsupportedError(
            f"{device.name} has upstream's flow control, which only its application can switch.",
            install if on else "Only its application can switch it off.",
        )
    if default.installed and default.tun_built_in:
        hint = "The built-in driver serves it; 'nodrop doctor' reports what to restart."
    elif default.installed:
        hint = (
            "nodrop's driver is installed but not loaded: reboot, or 'nodrop install' reports what "
            "to restart. 'nodrop livepatch load' keeps all sessions open."
        )
    else:
        hint = install
    raise UnsupportedError(f"{device.name} uses the stock driver, which drops.", hint)


def _read_switch(name: str) -> Switch:
    try:
        driver = ethtool.driver(name)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise _device_error(name, error) from error
        driver = ""
    if driver != "tun":
        raise NodropError(
            f"{name} is not a TUN or TAP device.",
            _SHARED_SWITCH
            if driver in ("macvlan", "ipvlan")
            else f"Its driver is {driver}; only devices of tun can be switched."
            if driver
            else "",
        )
    try:
        on = ethtool.private_flags(name).get(FLAG)
    except OSError as error:
        raise _device_error(name, error) from error
    flags = modules.tun_flags(name)
    asked = on is None and bool(flags & modules.IFF_BACKPRESSURE)
    return Switch(name, on, asked, bool(flags & modules.IFF_PERSIST))


def _is_tun(name: str, sock: ethtool.Socket) -> bool:
    with suppress(OSError):
        return ethtool.driver(name, sock) == "tun"
    return False


def _turn(name: str, on: bool) -> None:
    try:
        ethtool.set_private_flag(name, FLAG, on)
    except OSError as error:
        raise _device_error(name, error) from error


def _device_error(name: str, error: OSError) -> NodropError:
    if error.errno == errno.ENODEV:
        return NodropError(
            f"There is no device {name} here.", "See 'ip link', or select a namespace with -n."
        )
    if error.errno in (errno.EPERM, errno.EACCES):
        return refused(f"switch {name}", error.errno, "CAP_NET_ADMIN")
    if error.errno == errno.EOPNOTSUPP:
        return UnsupportedError(f"{name} has no switch any more: its driver was changed.")
    return NodropError(f"{name} cannot be switched: {error.strerror}.")
