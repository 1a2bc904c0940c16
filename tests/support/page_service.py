"""A service for the page: scorers without models whose replies look like the starter's; and it can go away."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from turnscore_core.scorers.scorer import RawScore, TokenPack
from turnscore_load.machine import free_port
from turnscore_service.api.http.app import create_app
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.settings.service import Settings

from support.fakes import FakeScorer, loaded_fake
from support.listening import listening

HEADS = ("relevant", "fluent", "engaging", "sentiment", "continues", "overall")


class FakeQuality(FakeScorer):
    """A twentieth for each word; below two words a turn is low, and `engaging` is what pulls it down."""

    KIND: ClassVar[str] = "quality"
    reason_heads = HEADS[:-1]

    def __init__(self) -> None:
        super().__init__()
        self.threshold = 0.08

    def score(self, batch: Sequence[TokenPack]) -> list[RawScore]:
        return [_rate(pack.width) for pack in batch if super(FakeQuality, self).score([pack])]


class FakeFed(FakeScorer):
    """A stand-in with two qualities."""

    KIND: ClassVar[str] = "fed"

    def __init__(self) -> None:
        super().__init__()
        self.stand_in = True

    def score(self, batch: Sequence[TokenPack]) -> list[RawScore]:
        details = {"kind": -1.5, "kind_percentile": 20.0, "clear": 0.5, "clear_percentile": 70.0}
        return [RawScore(raw.value, details) for raw in super().score(batch)]


def _rate(words: int) -> RawScore:
    value = min(1.0, words / 20)
    heads = {name: value if name == "engaging" else 0.6 for name in HEADS}
    return RawScore(value, heads | {f"{name}_percentile": 100 * head for name, head in heads.items()})


@asynccontextmanager
async def scoring(settings: Settings | None = None) -> AsyncIterator[Runtime]:
    """A ready runtime with `quality`, `engagement` and the stand-in `fed`."""
    scorers: dict[str, Any] = {"engagement": FakeScorer(), "fed": FakeFed(), "quality": FakeQuality()}
    loaded = {name: loaded_fake(scorer, name) for name, scorer in scorers.items()}
    runtime = Runtime(settings or Settings(), load=lambda _: loaded)
    runtime.start()
    await runtime.wait_until_loaded()
    try:
        yield runtime
    finally:
        await runtime.stop()


class Address:
    """An address of this machine at which the service is, or is not."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._port = free_port()
        self._open: Any = None
        self.url = f"http://127.0.0.1:{self._port}/"

    async def start(self) -> None:
        self._open = listening(create_app(self._runtime), self._runtime.settings, port=self._port)
        await self._open.__aenter__()

    async def stop(self) -> None:
        await self._open.__aexit__(None, None, None)


@asynccontextmanager
async def serving_page(settings: Settings | None = None) -> AsyncIterator[Address]:
    """The service with its page."""
    async with scoring(settings) as runtime:
        address = Address(runtime)
        await address.start()
        try:
            yield address
        finally:
            await address.stop()


def dialogue_of(turns: int) -> Iterator[dict[str, str]]:
    """So many turns, the user's first; every tenth of the chatbot's is one word, and low."""
    for place in range(turns):
        words = 1 if place % 20 == 19 else 3 + place % 15
        yield {
            "speaker": ("user", "system")[place % 2],
            "text": f"{place} " + "and so on " * (words // 3) if words > 1 else "ok.",
        }
