# SPDX-License-Identifier: GPL-2.0-only
"""Which modules a pair of variants needs, and that no others stay loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.guest import drivers
from nodrop.guest.drivers import ON_TOP, OPTIONAL, Drivers, modules
from nodrop.guest.failure import GuestError
from nodrop.guest.plan import Variant

VHOST = [OPTIONAL, "stock/vhost_iotlb.ko", "stock/vhost.ko"]


@pytest.mark.parametrize(
    ("tun", "vhost", "wanted"),
    [
        (Variant.STOCK, None, ["stock/tun.ko", *ON_TOP]),
        (Variant.NODROP, None, ["nodrop/nodrop.ko", "nodrop/tun.ko", *ON_TOP]),
        (
            Variant.UPSTREAM,
            Variant.UPSTREAM,
            [*VHOST, "stock/tun.ko", *ON_TOP, "stock/vhost_net.ko"],
        ),
        (
            Variant.NODROP,
            Variant.STOCK,
            [*VHOST, "nodrop/nodrop.ko", "nodrop/tun.ko", *ON_TOP, "stock/vhost_net.ko"],
        ),
        (
            Variant.STOCK,
            Variant.NODROP,
            [*VHOST, "nodrop/nodrop.ko", "stock/tun.ko", *ON_TOP, "nodrop/vhost_net.ko"],
        ),
    ],
)
def test_modules(tun: Variant, vhost: Variant | None, wanted: list[str]) -> None:
    assert modules(tun, vhost) == wanted


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A folder of empty modules, and the list of what is done with them."""
    for name in {name for a in Variant for b in Variant for name in modules(a, b)}:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    done: list[str] = []

    def tool(argv: list[str]) -> str:
        done.append(f"{argv[0]} {argv[1].removeprefix(f'{tmp_path}/')}")
        return ""

    monkeypatch.setattr(drivers, "tool", tool)
    return done


def test_another_pair_unloads_only_what_is_in_the_way(tmp_path: Path, calls: list[str]) -> None:
    loader = Drivers(tmp_path)
    loader.use(Variant.NODROP, vhost=Variant.NODROP)
    calls.clear()
    loader.use(Variant.NODROP, vhost=Variant.STOCK)
    assert calls == ["insmod stock/vhost_net.ko"]
    calls.clear()
    loader.use(Variant.NODROP, vhost=Variant.STOCK)
    assert calls == []


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    with pytest.raises(GuestError, match=r"no stock/tun\.ko"):
        Drivers(tmp_path).use(Variant.STOCK)
