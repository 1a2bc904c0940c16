"""The scorers of a start: proved again only where measuring asks for other threads."""

from pathlib import Path

import pytest
from support.bundles import make_encoder_bundle, make_quality_bundle
from support.fakes import CPU_BUILD, FakeMachine
from turnscore_core import loaded_scorer, model_loader
from turnscore_core.inference.concurrency import Concurrency
from turnscore_core.load_settings import LoadSettings
from turnscore_core.model_loader import ModelLoader

pytestmark = pytest.mark.usefixtures("two_cpus")


@pytest.fixture
def two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_loader, "usable_cpus", lambda: 2)


def loader_of(folder: Path, **runtime: int) -> ModelLoader:
    """Of an encoder and a quality bundle."""
    make_encoder_bundle(folder / "encoder")
    make_quality_bundle(folder / "quality")
    settings = LoadSettings(models=(f"{folder}/encoder", f"{folder}/quality"), max_batch_tokens=64, **runtime)
    return ModelLoader(settings, machine=FakeMachine(CPU_BUILD))


@pytest.mark.parametrize(
    ("measured", "times"), [(Concurrency(2, 1), 1), (Concurrency(1, 2), 2), (Concurrency(2, 1, wide_threads=2), 2)]
)
def test_a_graph_is_proved_again_only_where_other_threads_serve_it_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: Concurrency, times: int
):
    checked: list[str] = []
    run_self_test = loaded_scorer.run_self_test

    def count(bundle, *rest):
        checked.append(bundle.manifest.kind)
        run_self_test(bundle, *rest)

    monkeypatch.setattr(loaded_scorer, "run_self_test", count)
    monkeypatch.setattr(model_loader, "measure_concurrency", lambda *_: measured)
    loaded = loader_of(tmp_path).load_all()
    assert {kind: each.concurrency for kind, each in loaded.items()} == dict.fromkeys(("encoder", "quality"), measured)
    assert sorted(checked) == sorted(["encoder", "quality"] * times)
