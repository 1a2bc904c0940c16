"""Candidate versions with real bundles: found, checked, warmed, answered and compared."""

import json
import shutil
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from support.bundles import make_quality_bundle
from support.conditions import until
from support.fakes import FakeScorer, candidate_version, loaded_fake
from support.versions import FakeLoader, second_version
from turnscore_core.deadline import Deadline
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.scheduling.versions import CandidateVersions
from turnscore_service.settings.service import Settings
from turnscore_wire import ScoreRequest


@pytest.fixture
def versions(tmp_path: Path) -> dict[str, str]:
    """Folders of a small quality bundle in three versions of the same content."""
    own = tmp_path / "1.0.0"
    make_quality_bundle(own)
    folders = {"served": str(own)}
    for name, version in (("shadow", "7.0.0"), ("split", "8.0.0")):
        folder = tmp_path / version
        shutil.copytree(own, folder)
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps({**manifest, "version": version}))
        folders[name] = str(folder)
    return folders


async def test_a_shadow_of_the_same_content_agrees_to_the_last_bit_and_a_split_answers(versions: dict[str, str]):
    settings = Settings.model_validate(
        {
            "models": versions["served"],
            "shadow": f"{versions['shadow']}=1",
            "split": f"{versions['split']}=1",
            "runtime": {"threads": 1, "concurrent_batches": 1},
        }
    )
    runtime = Runtime(settings)
    runtime.start()
    await runtime.wait_until_loaded()
    assert runtime.health.state == "ready", runtime.health.reason

    def compared(series: str, **more: str) -> float:
        labels = {"scorer": "quality", "model": "quality:7.0.0", "served": model, **more}
        return REGISTRY.get_sample_value(f"turnscore_shadow_{series}", labels) or 0.0

    asked = ScoreRequest.model_validate({"context": [], "response": "that is great, thanks"})
    reply = await runtime.pipeline().score(asked, "r-1", Deadline.after_ms(60_000))
    model = reply.scores["quality"].model
    named = ScoreRequest.model_validate({"response": "that is great, thanks", "conversation": "c"})
    other = await runtime.pipeline().score(named, "r-2", Deadline.after_ms(60_000))
    assert (model.endswith(":8.0.0"), other.scores["quality"].model) == (False, "quality:8.0.0")
    assert (other.scores["quality"].value, other.scores["quality"].cached) == (reply.scores["quality"].value, False)
    await until(lambda: compared("turns_total", outcome="compared"))
    assert compared("percentile_shift_bucket", le="1.0") == compared("turns_total", outcome="compared") == 1
    assert compared("percentiles_total", by="served") == compared("percentiles_total", by="shadow")
    await runtime.stop()


async def test_after_a_switch_a_split_draws_as_before_and_a_shadow_compares_with_what_is_served():
    loader = FakeLoader(loaded_fake(FakeScorer()))
    reference = loader.add(second_version(version="1.1.0"))
    candidates = CandidateVersions(
        shadows=[candidate_version(FakeScorer(), version="1.2.0")],
        splits=[candidate_version(FakeScorer(), version="1.3.0")],
    )

    def compared(served: str) -> float:
        labels = {"scorer": "fake", "model": "fake:1.2.0", "served": served, "outcome": "compared"}
        return REGISTRY.get_sample_value("turnscore_shadow_turns_total", labels) or 0.0

    runtime = Runtime(Settings(), loader=loader, load_candidate=lambda *_: candidates)
    runtime.start()
    await runtime.wait_until_loaded()
    assert runtime.switch is not None
    for served in ("fake:1.0.0", reference):
        if served == reference:
            await runtime.switch.serve(reference)
        answered = [
            (await runtime.pipeline().score(ScoreRequest(response="a b", **named), "r", Deadline.after_ms(60_000)))
            for named in ({}, {"conversation": "c"})
        ]
        assert [each.scores["fake"].model for each in answered] == [served, "fake:1.3.0"]
        await until(lambda: compared(served) == 1)  # noqa: B023 - asked within the round
    await runtime.stop()
