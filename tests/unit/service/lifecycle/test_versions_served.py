"""Candidate versions with real bundles: found, checked, warmed, answered and compared."""

import asyncio
import json
import random
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import REGISTRY
from support.bundles import converse, make_quality_bundle, make_quality_version
from support.conditions import until
from support.fakes import FakeScorer, candidate_version, candidates_are, loaded_fake
from support.transports import HeldChannel
from support.versions import FakeLoader, second_version
from turnscore_core.deadline import Deadline
from turnscore_core.engine import Dialogue, Engine
from turnscore_core.kept_vectors import VectorCounts
from turnscore_core.model_loader import ModelLoader
from turnscore_service.api.http.app import create_app
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.scheduling import shadow
from turnscore_service.scheduling.versions import CandidateVersions
from turnscore_service.settings.service import Settings
from turnscore_wire import Score, ScoreRequest, Turn


@pytest.fixture
def versions(tmp_path: Path) -> dict[str, str]:
    """Folders of a small quality bundle in three versions of the same content."""
    own = tmp_path / "1.0.0"
    make_quality_bundle(own)
    folders = {"served": str(own)}
    for name, version in (("shadow", "7.0.0"), ("split", "8.0.0")):
        folder = shutil.copytree(own, tmp_path / version)
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

    runtime = Runtime(Settings(), loader)
    with candidates_are(candidates):
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


# Of every word, by version: what serves, what is switched to, what shadows, what answers a split.
MARKS = {"1.0.0": 1.0, "2.0.0": -1.0, "7.0.0": 0.5, "8.0.0": -0.5}
CONVERSATIONS = {f"c-{seed}": converse(seed, 12) for seed in range(8)}
SHADOW = "quality:7.0.0"


@asynccontextmanager
async def serving(models: Path, **settings: Any) -> AsyncIterator[tuple[Runtime, httpx.AsyncClient]]:
    """A service in this process that computes every score."""
    fixed = {
        "runtime": {"threads": 1, "concurrent_batches": 1},
        "cache": {"ttl_seconds": 0},
        "default_deadline_ms": 60_000,
    }
    runtime = Runtime(Settings.model_validate({"models": f"{models}/", **fixed, **settings}))
    runtime.start()
    try:
        await runtime.wait_until_loaded()
        assert runtime.health.state == "ready", runtime.health.reason
        transport = httpx.ASGITransport(create_app(runtime))
        async with httpx.AsyncClient(transport=transport, base_url="http://turnscore") as client:
            yield runtime, client
    finally:
        await runtime.stop()


def kept_counts(runtime: Runtime) -> VectorCounts:
    assert isinstance(runtime._loader, ModelLoader)
    return runtime._loader.kept.counts()


class Plain:
    """Scores of engines that keep no vectors, one for each version."""

    def __init__(self, engines: dict[str, Engine]) -> None:
        self._engines = engines

    def score(self, model: str, turns: Sequence[Turn]) -> Score:
        [result] = self._engines[model].score([Dialogue("", turns, is_last_alone=True)])
        return result.turns[0].scores["quality"]


@contextmanager
def plain_engines(*bundles: Path) -> Iterator[Plain]:
    engines = {f"quality:{each.name}": Engine([f"{each}/"], kept_vector_bytes=0) for each in bundles}
    yield Plain(engines)
    for each in engines.values():
        each.close()


async def ask(client: httpx.AsyncClient, name: str, place: int) -> Score:
    """The score of the conversation's turn there, over HTTP."""
    turns = [turn.model_dump(include={"speaker", "text"}) for turn in CONVERSATIONS[name][: place + 1]]
    fields = {"conversation": name, "context": turns[:-1], "response": turns[-1]["text"]}
    return Score.model_validate((await client.post("/v1/score", json=fields)).json()["scores"]["quality"])


class Talks:
    """Live conversations, one by one."""

    def __init__(self, runtime: Runtime, names: Sequence[str]) -> None:
        self._channels = {name: HeldChannel() for name in names}
        hold, pipeline = runtime.conversations.hold, runtime.pipeline
        self._held = [asyncio.create_task(hold(pipeline, each, "r")) for each in self._channels.values()]
        for name, channel in self._channels.items():
            channel.tell({"open": {"conversation": name}})

    async def ask(self, name: str, place: int) -> Score:
        """The score of the system turn there, after the user's."""
        for turn in CONVERSATIONS[name][place - 1 : place + 1]:
            self._channels[name].say(turn.speaker, turn.text)
        while (heard := await self._channels[name].hear()).scored is None:
            pass
        return heard.scored.scores["quality"]

    async def end(self) -> None:
        for channel in self._channels.values():
            channel.inbox.put_nowait(None)
        await asyncio.gather(*self._held)


def compared(served: str, series: str, **more: str) -> float:
    """Of the shadow beside that version."""
    labels = {"scorer": "quality", "model": SHADOW, "served": served, **more}
    return REGISTRY.get_sample_value(f"turnscore_shadow_{series}", labels) or 0.0


Answered = list[tuple[str, int, Score]]  # conversation, place, and what was answered


async def check_shadow(answered: Answered, served: str, plain: Plain) -> None:
    """Its percentiles of all that the version answered, which are added up, are those without kept vectors."""
    said = [(name, place) for name, place, score in answered if score.model == served]
    await until(lambda: compared(served, "turns_total", outcome="compared") == len(said))
    own = [plain.score(SHADOW, CONVERSATIONS[name][: place + 1]).percentile or 0 for name, place in said]
    assert compared(served, "percentiles_total", by="shadow") == pytest.approx(sum(own), rel=1e-9)


async def test_no_version_uses_what_another_read_while_it_is_switched_shadowed_and_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shadow, "MOST_WAITING", 10_000)  # however slow the machine, it compares every turn
    monkeypatch.setattr(shadow, "MOST_SECONDS", 600)
    for version, marks in MARKS.items():
        make_quality_version(tmp_path / version, version, marks=marks)
    roles = {"shadow": f"{tmp_path / '7.0.0'}=1", "split": f"{tmp_path / '8.0.0'}=0.5"}
    answered: Answered = []
    with plain_engines(*(tmp_path / each for each in MARKS)) as plain:
        async with serving(tmp_path / "1.0.0", **roles) as (runtime, client):
            talks = Talks(runtime, list(CONVERSATIONS))

            async def play(place: int) -> None:
                for name in CONVERSATIONS:
                    answered.append((name, place, await talks.ask(name, place)))
                    answered.append((name, place, await ask(client, name, place)))

            await play(1)
            await play(3)
            await check_shadow(answered, "quality:1.0.0", plain)
            assert runtime.switch is not None
            switching = asyncio.create_task(runtime.switch.serve(f"{tmp_path / '2.0.0'}/"))
            while not switching.done():
                answered += [(name, 5, await ask(client, name, 5)) for name in CONVERSATIONS]
            await switching
            for place in (5, 7, 9, 11):
                await play(place)
            await check_shadow(answered, "quality:2.0.0", plain)
            counts = kept_counts(runtime)
            await talks.end()
        for name, place, score in answered:
            expected = plain.score(score.model, CONVERSATIONS[name][: place + 1])
            assert (score.value, score.details) == (expected.value, expected.details)
    by_model = Counter(score.model for _, _, score in answered)
    assert by_model.keys() == {f"quality:{version}" for version in MARKS} - {SHADOW}
    assert min(by_model.values()) > 10
    assert min(counts.hits["context"], counts.misses["context"]) > 60


async def test_three_replicas_without_affinity_give_the_scores_of_one_that_keeps_nothing(tmp_path: Path):
    bundle = make_quality_bundle(tmp_path / "0.0.1").folder
    chance = random.Random(1)
    async with AsyncExitStack() as stack:
        replicas = [await stack.enter_async_context(serving(bundle)) for _ in range(3)]
        plain = stack.enter_context(plain_engines(bundle))
        for place in range(1, 12, 2):
            for name, turns in CONVERSATIONS.items():
                for _, client in chance.choices(replicas, k=3):
                    score = await ask(client, name, place)
                    expected = plain.score(score.model, turns[: place + 1])
                    assert (score.value, score.details) == (expected.value, expected.details)
        found = [kept_counts(runtime).hits["context"] for runtime, _ in replicas]
    assert min(found) > 10
