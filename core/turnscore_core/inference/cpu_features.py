"""What the CPU can do in hardware, as far as it decides how int8 graphs are computed. Reads Linux's own list."""

import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_X86 = ("x86_64", "AMD64")
_WIDE_SUMS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})
"""Linux's words for the instructions that add products of bytes in 32 bits."""


def int8_saturates(machine: str | None = None, cpuinfo: Path = _CPUINFO) -> bool:
    """Whether products of uint8 and int8 may be added in 16 bits here, where they saturate.

    That is so on x86 with AVX2 or AVX-512 but without VNNI; also said where the CPU's features cannot be read.
    """
    if (machine or platform.machine()) not in _X86:
        return False
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return True
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return _WIDE_SUMS.isdisjoint(flags)
