# SPDX-License-Identifier: GPL-2.0-only
"""kmod/live/prove on small programs: what it accepts, and what it refuses for which reason."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROVE = Path(__file__).resolve().parents[2] / "kmod/live/prove"

DRIVER = """
struct ptr_ring { int n; };
extern int slow(int);
static inline int __ptr_ring_produce(struct ptr_ring *r, int x) { r->n += slow(x); return x; }
static inline int ptr_ring_init(struct ptr_ring *r) { return r->n = slow(0); }
static __attribute__((noinline)) int xmit(struct ptr_ring *r, int x)
{
	extern int declared_inside(int);
	return __ptr_ring_produce(r, x) + declared_inside(x);
}
static __attribute__((noinline)) int open_ring(struct ptr_ring *r) { return ptr_ring_init(r); }
int (*volatile ops[])(struct ptr_ring *) = { open_ring };
int entry(struct ptr_ring *r, int x) { return xmit(r, x) * slow(xmit(r, x + 1)); }
"""


@pytest.fixture(scope="module")
def prove() -> ModuleType:
    """The program as a module."""
    loader = importlib.machinery.SourceFileLoader("prove", str(PROVE))
    spec = importlib.util.spec_from_loader("prove", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["prove"] = module
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


def build(folder: Path, text: str, name: str = "tun.ko", *options: str) -> Path:
    """Compile a driver as the kernel does."""
    source, made = folder / "driver.c", folder / name
    source.write_text(text)
    command = ["gcc", "-O2", "-g", "-fno-ipa-sra", "-mcmodel=kernel", "-fno-pic", *options]
    subprocess.run([*command, "-c", source, "-o", made], check=True)
    return made


def test_inlined_access_is_found(prove: ModuleType, tmp_path: Path) -> None:
    found = prove.reaches(build(tmp_path, DRIVER))
    assert found == {"xmit": {"__ptr_ring_produce"}, "open_ring": {"ptr_ring_init"}}


def test_all_that_reach_it_are_replaced(prove: ModuleType, tmp_path: Path) -> None:
    prove.replaceable(build(tmp_path, DRIVER), {"xmit"})


def test_callers_are_enough(prove: ModuleType, tmp_path: Path) -> None:
    prove.replaceable(build(tmp_path, DRIVER), {"entry"})


def test_forgotten_function_is_refused(prove: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(prove.Refusal, match=r"xmit\(\) reaches the ring by __ptr_ring_produce"):
        prove.replaceable(build(tmp_path, DRIVER), {"open_ring"})


def test_function_whose_address_is_taken_is_refused(prove: ModuleType, tmp_path: Path) -> None:
    driver = DRIVER.replace("return r->n = slow(0)", "return __ptr_ring_produce(r, 0)")
    driver = driver.replace("ptr_ring_init(r)", "__ptr_ring_produce(r, 1)")
    with pytest.raises(prove.Refusal, match=r"open_ring\(\) reaches the ring"):
        prove.replaceable(build(tmp_path, driver), {"xmit"})


def test_function_with_another_name_is_refused(prove: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(prove.Refusal, match="has no function tun_do_read"):
        prove.replaceable(build(tmp_path, DRIVER), {"xmit", "tun_do_read"})


def same(folder: Path, driver: str, twin: str, *options: str) -> bool:
    """Whether kmod/twin takes one for what the other was made of."""
    for place, text, others in (("dist", driver, ()), ("twin", twin, options)):
        (folder / place).mkdir()
        build(folder / place, text, "tun.ko", *others)
    command: list[str | Path] = [PROVE.parents[1] / "twin", "same", folder, "tun"]
    return subprocess.run(command, check=False).returncode == 0


def test_same_source_is_the_same(tmp_path: Path) -> None:
    assert same(tmp_path, DRIVER, DRIVER)


@pytest.mark.parametrize(
    ("old", "new"),
    [("x + 1", "x + 2"), ("slow(0)", "declared_inside(0)"), ("open_ring }", "0 }")],
)
def test_other_source_differs(tmp_path: Path, old: str, new: str) -> None:
    driver = DRIVER.replace("extern int slow", "extern int declared_inside(int);\nextern int slow")
    assert not same(tmp_path, driver, driver.replace(old, new, 1))


def test_data_of_the_driver_are_refused(prove: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(prove.Refusal, match="ops is data of the driver"):
        prove.clean(build(tmp_path, DRIVER))


def test_own_module_is_refused(prove: ModuleType, tmp_path: Path) -> None:
    text = "extern int __this_module; int put(int *); int f(void) { return put(&__this_module); }"
    with pytest.raises(prove.Refusal, match="refers to its own module"):
        prove.clean(build(tmp_path, text))


def test_left_address_is_refused(prove: ModuleType, tmp_path: Path) -> None:
    text = """
extern void set_timer(void (*call)(int));
static __attribute__((noinline)) void expired(int x) { set_timer((void (*)(int))(long)x); }
void start(int x) { set_timer(expired); }
"""
    with pytest.raises(prove.Refusal, match=r"the address of expired\(\)"):
        prove.clean(build(tmp_path, text))


def test_build_id(prove: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = build(tmp_path, "int main(void) { return 0; }", "m.o", "-mcmodel=small")
    (tmp_path / "dist").mkdir()
    for name in ("tun", "vhost_net"):
        made = tmp_path / f"dist/{name}.ko"
        subprocess.run(["gcc", "-no-pie", "-Wl,--build-id=sha1", program, "-o", made], check=True)
    prove.print_ids(tmp_path)
    text = capsys.readouterr().out
    assert f"0x{prove.build_id(made)[:2]}, " in text
    assert text.count("_ID { 0x") == 2


@pytest.mark.parametrize("own", [True, False])
def test_flow_control_of_the_kernels_own_is_refused(
    prove: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], own: bool
) -> None:
    twin = tmp_path / "twin/tun.c"
    twin.parent.mkdir()
    twin.write_text("if (tun->flags & IFF_BACKPRESSURE)" if own else "/* drops */")
    assert prove.main(["ids", str(tmp_path)]) == 1
    assert ("has flow control of its own" in capsys.readouterr().err) is own
