from pathlib import Path

import pytest
from turnscore_core.inference.onnx_backend import int8_saturates


@pytest.mark.parametrize(
    ("machine", "flags", "saturates"),
    [
        ("x86_64", "fpu avx2 avx512f", True),
        ("x86_64", "fpu avx2 avx512f avx512_vnni", False),
        ("AMD64", "fpu avx2 avx_vnni", False),
        ("x86_64", "fpu avx512f amx_int8", False),
        ("aarch64", "fp asimd", False),
    ],
)
def test_products_saturate_on_x86_without_wide_sums(tmp_path: Path, machine: str, flags: str, saturates: bool):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nmodel name\t: X\nflags\t\t: {flags}\n\nprocessor\t: 1\n")
    assert int8_saturates(machine, cpuinfo) is saturates


def test_a_cpu_that_says_nothing_is_taken_for_one_that_saturates(tmp_path: Path):
    assert int8_saturates("x86_64", tmp_path / "missing")
    (tmp_path / "empty").write_text("")
    assert int8_saturates("x86_64", tmp_path / "empty")
