from pathlib import Path

import pytest
from support.fed import make_fed_bundle
from turnscore_core.load_settings import LoadSettings
from turnscore_core.model_loader import ModelLoader
from turnscore_service.settings.service import Settings

FUNNY = {"funny": {"positive": ["haha"], "negative": []}}


def test_a_deployments_options_stand_over_the_bundles_and_change_its_digest(tmp_path: Path) -> None:
    bundle = make_fed_bundle(tmp_path / "fed")
    changed = ModelLoader(LoadSettings(options={"fed": {"own_qualities": FUNNY}})).with_options(bundle)
    assert changed.manifest.options == {**bundle.manifest.options, "own_qualities": FUNNY}
    assert changed.digest != bundle.digest
    assert ModelLoader(LoadSettings()).with_options(bundle) is bundle


def test_options_come_from_the_environment_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNSCORE_OPTIONS", '{"fed": {"loss": "whole_sequence"}}')
    assert Settings().options == {"fed": {"loss": "whole_sequence"}}
