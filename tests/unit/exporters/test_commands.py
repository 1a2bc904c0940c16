"""The commands where the extra is missing that they need."""

import sys
from collections.abc import Callable

import pytest
from turnscore_exporters.commands.commands import commands

ENGAGEMENT = ["engagement", "--checkpoint", "c", "--version", "1.0.0", "--output", "o", "--data", "d"]


@pytest.mark.parametrize(
    ("start", "module", "words", "package", "extra"),
    [
        (commands.export, "export_cli", ENGAGEMENT, "torch", "export"),
        (commands.export, "export_cli", ["fed", "--checkpoint", "c", "--verify"], "transformers", "export"),
        (commands.train, "train_cli", ["dialogue-lm", "--data", "d", "--output", "o"], "torch", "export"),
        (commands.bench_fed, "fed_bench_cli", ["--tokenizer", "t"], "tqdm", "export"),
        (commands.bench_fed, "fed_bench_cli", ["--tokenizer", "t"], "onnxruntime", "cpu"),
        (commands.agreement, "agreement_cli", ["f"], "scipy", "export"),
        (commands.agreement_table, "agreement_table.command", [".", "--output", "o"], "scipy", "export"),
        (commands.agreement_convert, "agreement_cli", ["f"], "scipy", "export"),
    ],
)
def test_a_missing_package_is_one_sentence_that_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, start: Callable[[], None], module: str, words: list[str], package: str, extra: str
) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] in ("turnscore_exporters", package)]:
        if name not in ("turnscore_exporters", "turnscore_exporters.commands.commands"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(sys, "argv", [module, *words])
    with pytest.raises(SystemExit, match=rf"^error: {package} is not installed: install the extra `{extra}` \(pip"):
        start()


def test_a_module_of_our_own_that_is_missing_is_no_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "turnscore_exporters.commands.train_cli", None)
    with pytest.raises(ModuleNotFoundError):
        commands.train()


def test_help_needs_no_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(sys, "argv", ["turnscore-export", "--help"])
    with pytest.raises(SystemExit, match=r"^0$"):
        commands.export()
    assert "sentiment-stop" in capsys.readouterr().out
