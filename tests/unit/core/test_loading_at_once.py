"""The scorers of a start: loaded side by side, measured alone, and loaded again only where measuring asks for it."""

from dataclasses import replace
from pathlib import Path
from threading import Barrier, Lock

import pytest
from support.bundles import make_encoder_bundle, make_quality_bundle
from support.fakes import CPU_BUILD, FakeMachine, FakeScorer, loaded_fake
from turnscore_core import loaded_scorer, model_loader
from turnscore_core.inference.concurrency import Concurrency
from turnscore_core.load_settings import LoadSettings
from turnscore_core.loaded_scorer import LoadedScorer
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


def test_scorers_are_loaded_side_by_side_and_measured_when_nothing_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    both, lock, loading = Barrier(2, timeout=60), Lock(), set[str]()

    def prove(bundle, variant, **_):
        with lock:
            loading.add(bundle.manifest.kind)
        both.wait()  # raises where the second one waits for the end of the first
        with lock:
            loading.remove(bundle.manifest.kind)
        return replace(loaded_fake(FakeScorer()), bundle=bundle)

    def measure(checked: LoadedScorer, cpus: int = 1) -> Concurrency:
        assert loading == set()
        measured.append(checked.kind)
        return Concurrency(batches=cpus)

    def measure_pace(checked: LoadedScorer) -> LoadedScorer:
        measure(checked)
        return checked

    measured: list[str] = []
    monkeypatch.setattr(model_loader, "load_checked", prove)
    monkeypatch.setattr(model_loader, "measure_concurrency", measure)
    monkeypatch.setattr(model_loader, "measure_pace", measure_pace)
    monkeypatch.setattr(model_loader, "fill_arenas", lambda *_: None)
    loaded = loader_of(tmp_path).load_all()
    assert {kind: each.concurrency for kind, each in loaded.items()} == dict.fromkeys(
        ("encoder", "quality"), Concurrency(batches=2)
    )
    assert sorted(measured) == ["encoder", "encoder", "quality", "quality"]


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
