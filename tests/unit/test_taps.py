# SPDX-License-Identifier: GPL-2.0-only
"""What can be told of the ways into a macvtap without a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.guest.command import Service
from nodrop.guest.environment import Environment
from nodrop.guest.failure import Unsupported
from nodrop.guest.taps import __main__ as program
from nodrop.guest.taps import load, measure, ways


def test_one_module_differs() -> None:
    stock, nodrop = load.order("stock"), load.order("nodrop")
    assert [pair for pair in zip(stock, nodrop, strict=True) if len(set(pair)) > 1] == [
        ("stock/tap", "nodrop/tap")
    ]


def test_what_tap_needs_and_who_needs_it_load_in_their_order() -> None:
    order = load.order("stock")
    assert order.index("stock/macvlan") < order.index("stock/macvtap")
    assert order.index("stock/tap") < order.index("stock/macvtap")
    assert order.index("stock/tap") < order.index("stock/vhost_net")


def test_nothing_is_loaded_when_one_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[list[str]] = []
    monkeypatch.setattr(load, "tool", loaded.append)
    (tmp_path / "stock").mkdir()
    (tmp_path / "nodrop").mkdir()
    for name in load.order("nodrop")[:-1]:
        (tmp_path / f"{name}.ko").touch()
    with pytest.raises(Unsupported, match="vhost_net"):
        load.load("nodrop", tmp_path)
    assert loaded == []
    (tmp_path / "stock/vhost_net.ko").touch()
    load.load("nodrop", tmp_path)
    assert [Path(words[1]).stem for words in loaded] == [
        Path(name).name for name in load.order("nodrop")
    ]


def test_each_way_has_its_kind_of_device() -> None:
    assert ways.kind_of("sibling", tap=True) == "macvtap mode bridge"
    assert ways.kind_of("sibling", tap=False) == "macvlan mode bridge"
    assert ways.kind_of("ipvlan-l3", tap=True) == "ipvtap mode l3"
    assert ways.kind_of("ipvlan-l2", tap=False) == "ipvlan mode l2"


def test_a_guests_frame_is_ethernet_ip_and_udp() -> None:
    frame = measure.frame(7, 1000)
    assert len(frame) == 14 + 20 + 8 + 1000
    assert frame[:6] == bytes.fromhex(ways.MAC.replace(":", ""))
    assert frame[12:15] == b"\x08\x00\x45"
    assert int.from_bytes(frame[16:18], "big") == len(frame) - 14
    assert frame[23] == 17
    assert int.from_bytes(frame[42:50], "big") == 7


def test_sockets_send_what_the_flood_says() -> None:
    flood = measure.Flood("sibling", sockets=3, size=64, packets=5, seconds=2.0)
    here = Environment(out=Path("/o"), modules=Path("/m"), bin=Path("/b"))
    service = measure.sockets(flood, here, "sib")
    assert isinstance(service, Service)
    words = service._argv
    assert words[:2] == ["nsenter", "--net=/run/netns/sib"]
    for name, value in (("senders", "3"), ("size", "64"), ("packets", "5"), ("seconds", "2.0")):
        assert words[words.index(f"--{name}") + 1] == value


def test_the_program_knows_every_way() -> None:
    options = program.parser().parse_args([])
    assert tuple(options.ways) == ways.WAYS
    with pytest.raises(SystemExit):
        program.parser().parse_args(["--ways", "nowhere"])
