"""The machine: what a reader has to know of it beside the numbers."""

import re
from pathlib import Path

_WORTH_TELLING = {"avx512_vnni": "AVX-512 VNNI", "avx_vnni": "AVX-VNNI", "amx_int8": "AMX int8"}


def describe(cpus: int, cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """`2 cores of an AMD EPYC (AVX-512 VNNI)`, from what Linux reports; elsewhere only the number of cores."""
    text = cpuinfo.read_text() if cpuinfo.is_file() else ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^flags\s*:\s*(.+)$", text, re.MULTILINE)
    known = set(flags.group(1).split()) if flags else set()
    features = ", ".join(name for flag, name in _WORTH_TELLING.items() if flag in known)
    return f"{cpus} cores of {model.group(1) if model else 'an unknown CPU'}" + (f" ({features})" if features else "")
