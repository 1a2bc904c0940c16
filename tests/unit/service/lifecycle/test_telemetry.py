"""ONNX Runtime leaves nothing behind and reports nothing: no file of its telemetry appears, whatever imports it."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from turnscore_models import starter_bundles

ROOT = Path(__file__).parents[4]
SWITCH = "ORT_DISABLE_TELEMETRY"
LIBRARY = "onnxruntime"
SETTER = "turnscore_core"
SERVED = """
import sys
from pathlib import Path
from turnscore_models import read_bundle
from turnscore_core.loaded_scorer import load_scorer
load_scorer(read_bundle(Path(sys.argv[1])), "cpu-int8").run_sample()
"""
BARE = """
import sys
import onnxruntime
onnxruntime.InferenceSession(sys.argv[1] + "/graphs/cpu-int8.onnx", providers=["CPUExecutionProvider"])
"""


def files_left_by(code: str, home: Path) -> list[str]:
    """What a process of a fresh user leaves in its home and its folder of temporary files."""
    [bundle] = [each for each in starter_bundles() if each.name == "engagement"]
    temporary = home / "tmp"
    temporary.mkdir(parents=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(temporary)}
    subprocess.run([sys.executable, "-c", code, str(bundle)], env=environment, check=True)
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())


def test_a_bundle_that_is_loaded_and_scores_leaves_no_file_of_the_runtime(tmp_path: Path):
    assert files_left_by(SERVED, tmp_path / "served") == []


def test_the_runtime_by_itself_would_leave_some(tmp_path: Path):
    assert any("onnxruntime" in name for name in files_left_by(BARE, tmp_path / "bare"))


def sources() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split() if not name.startswith("tests/")]


def first_line(tree: ast.Module, *, importing: str = "", naming: str = "") -> int | None:
    """The line of the first statement that imports the library, or that names the variable."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = any(each.name.split(".")[0] == importing for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            found = (node.module or "").split(".")[0] == importing
        else:
            found = isinstance(node, ast.Constant) and bool(naming) and node.value == naming
        if found:
            lines.append(node.lineno)  # type: ignore[attr-defined]
    return min(lines, default=None)


def is_switched_off_before(file: Path) -> bool:
    """Whether importing the module sets the variable before the module's own import of the library."""
    tree = ast.parse(file.read_text())
    imported = first_line(tree, importing=LIBRARY) or sys.maxsize
    if (first_line(tree, naming=SWITCH) or sys.maxsize) < imported:
        return True
    package = file.parent
    while (package.parent / "__init__.py").exists():
        package = package.parent
    opened = package / "__init__.py"
    if not opened.exists():
        return False
    opening = ast.parse(opened.read_text())
    return first_line(opening, importing=SETTER) is not None or first_line(opening, naming=SWITCH) is not None


def test_nothing_imports_the_runtime_before_its_telemetry_is_off():
    users = [file for file in sources() if LIBRARY in file.read_text()]
    importers = [file for file in users if first_line(ast.parse(file.read_text()), importing=LIBRARY) is not None]
    assert len(importers) >= 5  # those of the exporters and the benchmarks
    importers += [file for file in users if f'import_module("{LIBRARY}' in file.read_text()]
    assert [str(file.relative_to(ROOT)) for file in importers if not is_switched_off_before(file)] == []


@pytest.mark.parametrize(
    ("code", "is_off"),
    [
        ("import onnxruntime\n", False),
        (f"import onnxruntime\nimport os\nos.environ['{SWITCH}'] = '1'\n", False),
        (f"import os\nos.environ['{SWITCH}'] = '1'\nfrom onnxruntime import transformers\n", True),
    ],
)
def test_the_check_sees_which_comes_first(tmp_path: Path, code: str, is_off: bool):
    file = tmp_path / "module.py"
    file.write_text(code)
    assert is_switched_off_before(file) is is_off


@pytest.mark.parametrize("name", ["Dockerfile", "bentofile.yaml", "Makefile"])
def test_images_and_commands_set_it_for_what_else_they_run(name: str):
    assert SWITCH in (ROOT / name).read_text()
