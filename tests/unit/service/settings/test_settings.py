from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError
from turnscore_service.settings.service import Settings

DOCS = Path(__file__).parents[4] / "docs" / "settings.md"


def variables(model: type[BaseModel], prefix: str) -> list[str]:
    names = []
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            names += variables(field.annotation, f"{prefix}{name.upper()}__")
        else:
            names.append(f"{prefix}{name.upper()}")
    return names


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TURNSCORE_MODELS", "engagement:1.0.0, ./bundles/mine ,")
    monkeypatch.setenv("TURNSCORE_LIMITS__MAX_TURNS", "3")
    settings = Settings()
    assert settings.models == ("engagement:1.0.0", "./bundles/mine")
    assert settings.limits.max_turns == 3


def test_a_wrong_value_names_the_setting(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TURNSCORE_BATCHING__MAX_BATCH_TOKENS", "-1")
    with pytest.raises(ValidationError, match=r"batching\.max_batch_tokens"):
        Settings()


def test_a_misspelt_setting_of_a_group_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TURNSCORE_LIMITS__MAX_TURN", "3")
    with pytest.raises(ValidationError, match=r"limits\.max_turn"):
        Settings()


@pytest.mark.parametrize("variable", variables(Settings, "TURNSCORE_"))
def test_every_setting_is_documented(variable: str):
    assert f"| `{variable}` |" in DOCS.read_text()


def test_no_setting_is_documented_that_does_not_exist():
    documented = [line.split("`")[1] for line in DOCS.read_text().splitlines() if line.startswith("| `TURNSCORE_")]
    assert sorted(documented) == sorted(variables(Settings, "TURNSCORE_"))
