"""Candidate versions with real bundles: found, checked, warmed, answered and compared."""

import asyncio
from collections import Counter
from contextlib import ExitStack

import pytest
from support.bundles import converse, make_quality_version
from support.conditions import until
from support.fakes import sample
from support.transports import HeldChannel, http_client
from turnscore_core.engine import Dialogue, Engine
from turnscore_core.model_loader import ModelLoader
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.scheduling import shadow
from turnscore_service.settings.service import Settings
from turnscore_wire import Score

# Of every word, by version: what serves, what is switched to, what shadows, what answers a split.
MARKS = {"1.0.0": 1.0, "2.0.0": -1.0, "7.0.0": 0.5, "8.0.0": -0.5}
CONVERSATIONS = {f"c-{seed}": converse(seed, 12) for seed in range(8)}
SHADOW = "quality:7.0.0"


class Plain:
    """Scores of engines that keep no vectors, one for each version."""

    def __init__(self, stack, folder):
        opened = {version: Engine([f"{folder / version}/"], threads=1, kept_vector_bytes=0) for version in MARKS}
        self._engines = {f"quality:{version}": stack.enter_context(each) for version, each in opened.items()}

    def score(self, model, name, place):
        dialogue = Dialogue("", CONVERSATIONS[name][: place + 1], is_last_alone=True)
        return self._engines[model].score([dialogue])[0].turns[0].scores["quality"]


async def ask(client, name, place):
    """The score of the conversation's turn there, over HTTP."""
    turns = [turn.model_dump(include={"speaker", "text"}) for turn in CONVERSATIONS[name][: place + 1]]
    fields = {"conversation": name, "context": turns[:-1], "response": turns[-1]["text"]}
    return Score.model_validate((await client.post("/v1/score", json=fields)).json()["scores"]["quality"])


class Talks:
    """Live conversations, one by one."""

    def __init__(self, runtime, names):
        self._channels = {name: HeldChannel() for name in names}
        hold, pipeline = runtime.conversations.hold, runtime.pipeline
        self._held = [asyncio.create_task(hold(pipeline, each, "r")) for each in self._channels.values()]
        for name, channel in self._channels.items():
            channel.tell({"open": {"conversation": name}})

    async def ask(self, name, place):
        """The score of the system turn there, after the user's."""
        for turn in CONVERSATIONS[name][place - 1 : place + 1]:
            self._channels[name].say(turn.speaker, turn.text)
        while (heard := await self._channels[name].hear()).scored is None:
            pass
        return heard.scored.scores["quality"]

    async def end(self):
        for channel in self._channels.values():
            channel.inbox.put_nowait(None)
        await asyncio.gather(*self._held)


def compared(served, series, **more):
    """Of the shadow beside that version."""
    return sample(f"shadow_{series}", scorer="quality", model=SHADOW, served=served, **more)


async def check_shadow(answered, served, plain):
    """Its percentiles of all that the version answered, which are added up, are those without kept vectors."""
    said = [(name, place) for name, place, score in answered if score.model == served]
    await until(lambda: compared(served, "turns_total", outcome="compared") == len(said))
    own = [plain.score(SHADOW, *each).percentile or 0 for each in said]
    assert compared(served, "percentiles_total", by="shadow") == pytest.approx(sum(own), rel=1e-9)


@pytest.mark.usefixtures("_checked_here")
async def test_no_version_uses_what_another_read_while_it_is_switched_shadowed_and_split(tmp_path, monkeypatch):
    monkeypatch.setattr(shadow, "MOST_WAITING", 10_000)  # however slow the machine, it compares every turn
    monkeypatch.setattr(shadow, "MOST_SECONDS", 600)
    for version, marks in MARKS.items():
        make_quality_version(tmp_path / version, version, marks=marks)
    settings = {
        "models": f"{tmp_path / '1.0.0'}/", "shadow": f"{tmp_path / '7.0.0'}=1",
        "split": f"{tmp_path / '8.0.0'}=0.5", "runtime": {"threads": 1, "concurrent_batches": 1},
        "cache": {"ttl_seconds": 0}, "default_deadline_ms": 60_000,
    }  # fmt: skip
    loader = ModelLoader(Settings.model_validate(settings).loading())
    runtime = Runtime(Settings.model_validate(settings), loader)
    runtime.start()
    await runtime.wait_until_loaded()
    assert runtime.health.state == "ready", runtime.health.reason
    answered = []
    with ExitStack() as stack:
        plain = Plain(stack, tmp_path)
        async with http_client(runtime) as client:
            talks = Talks(runtime, list(CONVERSATIONS))

            async def play(place):
                for name in CONVERSATIONS:
                    answered.append((name, place, await talks.ask(name, place)))
                    answered.append((name, place, await ask(client, name, place)))

            await play(1)
            await play(3)
            await check_shadow(answered, "quality:1.0.0", plain)
            switching = asyncio.create_task(runtime.switch.serve(f"{tmp_path / '2.0.0'}/"))
            while not switching.done():
                answered += [(name, 5, await ask(client, name, 5)) for name in CONVERSATIONS]
            await switching
            for place in (5, 7, 9, 11):
                await play(place)
            await check_shadow(answered, "quality:2.0.0", plain)
            counts = loader.kept.counts()
            await talks.end()
        await runtime.stop()
        for name, place, score in answered:
            expected = plain.score(score.model, name, place)
            assert (score.value, score.details) == (expected.value, expected.details)
    by_model = Counter(score.model for _, _, score in answered)
    assert by_model.keys() == {f"quality:{version}" for version in MARKS} - {SHADOW}
    assert min(by_model.values()) > 10
    assert min(counts.hits["context"], counts.misses["context"]) > 60
