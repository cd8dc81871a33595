# SPDX-License-Identifier: GPL-2.0-only
"""ESP around a tunnel's packets: policies and states at both ends, and ciphers that end later."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path

from nodrop.guest.netlink import CREATE, EXCLUSIVE, attribute
from nodrop.guest.tunnels.torture import place
from nodrop.guest.tunnels.torture.events import Act, Command, Make, far, near, pick
from nodrop.guest.tunnels.torture.netlink import CRYPTO, Netlink
from nodrop.guest.tunnels.torture.plan import Event
from nodrop.guest.tunnels.torture.victims import Victim

_GCM = "aead 'rfc4106(gcm(aes))' 0x" + "11" * 20 + " 128"
_CBC = "auth-trunc 'hmac(sha256)' 0x" + "22" * 32 + " 128 enc 'cbc(aes)' 0x" + "33" * 16
CIPHERS = (_GCM.replace("'", ""), _CBC.replace("'", ""))
_NEW_ALGORITHM, _PRIORITY = 0x10, 1
_ALGORITHM = struct.Struct("=64s64s64sIIII")


def _ends(six: bool, mode: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return who speaks to whom, and between whom the ESP packets go."""
    inner = (place.HERE6, place.THERE6) if six else (place.HERE4, place.THERE4)
    if mode == "transport":
        return inner, inner
    return inner, ("fd00:4::1", place.GATE6[0]) if six else ("198.18.4.1", place.GATE4[0])


def _state(six: bool, mode: str, cipher: str) -> str:
    _, (here, there) = _ends(six, mode)
    spi = 0x1000 + six
    return f"xfrm state add src {here} dst {there} proto esp spi {spi} reqid 7 mode {mode} {cipher}"


def _policy(six: bool, mode: str, direction: str, end: str = "") -> str:
    (here, there), (outer, beyond) = _ends(six, mode)
    template = f"tmpl src {outer} dst {beyond} proto esp reqid 7 mode {mode}"
    return f"xfrm policy add src {here} dst {there} dir {direction} {end or template}"


_OFF = [
    *near("xfrm policy flush", "xfrm state flush"),
    *far("xfrm policy flush", "xfrm state flush"),
]


def _esp(event: Event, _victim: Victim) -> Act:
    mode = pick(event, ("transport", "tunnel"))
    cipher = pick(event, CIPHERS, 8)
    do: list[Command] = []
    for six in (False, True):
        do += far(_state(six, mode, cipher), _policy(six, mode, "in"))
        do += near(_state(six, mode, cipher), _policy(six, mode, "out"))
    return Act(do, _OFF)


def _esp_without_state(event: Event, _victim: Victim) -> Act:
    # Packets wait in the policy's queue until there is a state: never, or in the end.
    mode = pick(event, ("transport", "tunnel"))
    six = pick(event, (False, True), 8)
    do = near(_policy(six, mode, "out"))
    late = [*far(_state(six, mode, CIPHERS[0]), _policy(six, mode, "in"))]
    late += near(_state(six, mode, CIPHERS[0]))
    return Act(do, [*(late if pick(event, (True, False), 16) else []), *_OFF])


def _esp_flaps(event: Event, _victim: Victim) -> Act:
    # States come and go below a policy that stays.
    do: list[Command] = []
    for six in (False, True):
        do += near(_policy(six, "transport", "out"))
        for at in range(4):
            do += near(_state(six, "transport", CIPHERS[(event.value >> at) & 1]))
            do += near("xfrm state flush")
    return Act(do, _OFF)


def _policy_blocks(_event: Event, _victim: Victim) -> Act:
    do = near(
        *(_policy(six, "transport", "out", "action block priority 1") for six in (False, True))
    )
    return Act(do, _OFF)


KINDS: dict[str, Make] = {
    "esp": _esp,
    "esp_without_state": _esp_without_state,
    "esp_flaps": _esp_flaps,
    "policy_blocks": _policy_blocks,
}


def asynchronous() -> int:
    """Have the ciphers end in another context from now on; return for how many that worked.

    A cipher's name then stands for the one behind cryptd, since that has a higher priority.
    """
    place.lines(place.NEAR, [_state(False, "transport", cipher) for cipher in CIPHERS[:1]])
    place.lines(place.NEAR, [_state(True, "transport", cipher) for cipher in CIPHERS[1:]])
    place.lines(place.NEAR, ["xfrm state flush"])
    done = 0
    # OSError: the kernel has no such family (CRYPTO_USER), or the cipher is there already.
    with suppress(OSError), Netlink(CRYPTO) as netlink:
        for driver in _drivers():
            body = _ALGORITHM.pack(b"", f"cryptd({driver})".encode(), b"", 0, 0, 0, 0)
            body += attribute(_PRIORITY, struct.pack("=I", 10000))
            with suppress(OSError):
                netlink.request(_NEW_ALGORITHM, CREATE | EXCLUSIVE, body)
                done += 1
    return done


def _drivers() -> list[str]:
    """Return the names of the AEADs that there are and that are none of cryptd's."""
    found = []
    for part in Path("/proc/crypto").read_text().split("\n\n"):
        fields = {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in part.splitlines())
        }
        driver = fields.get("driver", "")
        if fields.get("type") != "aead" or "cryptd" in driver or fields.get("async") != "no":
            continue
        if fields["name"].startswith(("rfc4106", "authenc")):
            found.append(driver)
    return found
