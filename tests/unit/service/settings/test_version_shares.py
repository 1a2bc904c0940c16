"""TURNSCORE_SHADOW and TURNSCORE_SPLIT: what they mean, and what they refuse."""

import pytest
from turnscore_service.settings.group import SHADOW_SHARE, VersionShare
from turnscore_service.settings.service import read_settings


def test_bundles_and_their_shares(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TURNSCORE_SHADOW", "engagement:1.1.0, ./a=b/quality=0.5,fed=1,")
    monkeypatch.setenv("TURNSCORE_SPLIT", "engagement:1.1.0 = 1e-3")
    settings = read_settings()
    assert settings.shadow == (
        VersionShare(bundle="engagement:1.1.0", share=SHADOW_SHARE),
        VersionShare(bundle="./a=b/quality", share=0.5),
        VersionShare(bundle="fed", share=1.0),
    )
    assert settings.split == (VersionShare(bundle="engagement:1.1.0", share=0.001),)


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("SPLIT", "engagement:1.1.0", "engagement:1.1.0 needs a share, such as engagement:1.1.0=0.1"),
        ("SHADOW", "fed=1.01", "fed=1.01 must have a share above 0 and at most 1"),
        ("SHADOW", "fed=0", "fed=0 must have a share above 0 and at most 1"),
        ("SPLIT", "fed=-1", "fed=-1 must have a share above 0 and at most 1"),
        ("SPLIT", "fed=nan", "fed=nan must have a share above 0 and at most 1"),
        ("SHADOW", "fed=10%", "fed=10% must end with a share, such as 0.1"),
        ("SHADOW", "fed={share}", "fed={share} must end with a share, such as 0.1"),
        ("SPLIT", "=0.5", "=0.5 must name a bundle before its share"),
        ("SHADOW", ",".join(f"bundle{number}" for number in range(9)), "at most 8 items"),
    ],
)
def test_what_is_no_share_stops_the_start_and_names_the_variable(
    variable: str, value: str, sentence: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(f"TURNSCORE_{variable}", value)
    with pytest.raises(SystemExit) as ended:
        read_settings()
    assert str(ended.value).startswith(f"TURNSCORE_{variable}: ")
    assert sentence in str(ended.value)
