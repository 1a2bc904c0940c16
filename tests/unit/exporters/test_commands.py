"""The commands where a package is missing that they need."""

import sys
from collections.abc import Callable, Iterator

import pytest
from turnscore_exporters.commands import entry_points

ENGAGEMENT = ["engagement", "--checkpoint", "c", "--version", "1.0.0", "--output", "o", "--data", "d"]


KEPT = ("turnscore_exporters", "turnscore_exporters.commands", entry_points.__name__)
Forget = Callable[[str], None]


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Iterator[Forget]:
    """Has the exporters imported anew, without a package. At the end all modules are those of before."""
    before = dict(sys.modules)
    names_in = {name: dict(vars(before[name])) for name in KEPT}

    def start(package: str) -> None:
        for name in before:
            if name.split(".")[0] in ("turnscore_exporters", package) and name not in KEPT:
                del sys.modules[name]
        monkeypatch.setitem(sys.modules, package, None)

    yield start
    monkeypatch.undo()
    for name in [each for each in sys.modules if each.split(".")[0] == "turnscore_exporters" and each not in before]:
        del sys.modules[name]
    sys.modules.update(before)
    for name, names in names_in.items():
        vars(before[name]).update(names)


def test_a_missing_runtime_is_one_sentence_that_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, forget: Forget
) -> None:
    forget("onnxruntime")
    monkeypatch.setattr(sys, "argv", ["turnscore-export", *ENGAGEMENT])
    with pytest.raises(SystemExit, match=r"^error: ONNX Runtime is not installed: install the extra `cpu` \(pip"):
        entry_points.export()


def test_another_module_that_is_missing_is_no_missing_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "turnscore_exporters.commands.train", None)
    with pytest.raises(ModuleNotFoundError):
        entry_points.train()


def test_help_needs_no_torch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(sys, "argv", ["turnscore-export", "--help"])
    with pytest.raises(SystemExit, match=r"^0$"):
        entry_points.export()
    assert "sentiment-stop" in capsys.readouterr().out
