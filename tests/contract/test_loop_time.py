"""No request that is legal by the limits keeps the event loop from everything else for long."""

import gc
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio
from support.conditions import pulse
from support.every_way import table_settings
from turnscore_core.deadline import Deadline
from turnscore_core.errors import ScoringError
from turnscore_service.api.calls import decode
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.settings.service import Settings
from turnscore_wire import DialogueRequest, RankRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONTROLS = 50
"""The longest silence, in times of decoding 1 MiB of dialogue (0.8 ms of CPU on a Xeon, 2026-11-22). Measured: 18 to
30; before turns were trimmed and their texts hashed once, 130 to 1,280."""

_WORDS = "so what did you do in the end about all those wonderful green apples, dear? "


def dialogue(user: str, system: str, turns: int = 1024, *, in_blocks: bool = False) -> dict[str, Any]:
    """User and system in turns, or first all that the user says; at most 1 MiB."""
    said = [
        {"speaker": "user", "text": user} if is_user else {"speaker": "system", "text": system}
        for is_user in ((place < turns // 2) if in_blocks else place % 2 == 0 for place in range(turns))
    ]
    return {"turns": said}


def text(chars: int) -> str:
    return (_WORDS * (chars // len(_WORDS) + 1))[:chars].strip()


DIALOGUES = {
    "long turns": dialogue(text(950), text(950)),
    "turns of 60 characters": dialogue(text(60), text(60)),
    "turns of one letter": dialogue("a", "b"),
    "a long question and many answers": dialogue("a", "b", in_blocks=True),
    "silence, then many answers": dialogue("", "b", in_blocks=True),
    "nothing that can be seen": dialogue("\u200b" * 300, "\u200b" * 300),
    "nothing but emoji": dialogue("\U0001f44d" * 240, "\U0001f44d" * 240),
    "nothing but control characters": dialogue("\x7f" * 950, "\x7f" * 950),
}


def body_of(fields: dict[str, Any]) -> bytes:
    body = json.dumps(fields, ensure_ascii=False).encode()
    assert len(body) <= Settings().limits.max_body_bytes
    return body


@pytest.fixture(scope="module")
def control() -> float:
    """CPU seconds of decoding the longest of the dialogues."""
    body = body_of(DIALOGUES["long turns"])

    def once() -> float:
        began = time.thread_time()
        decode(DialogueRequest, body)
        return time.thread_time() - began

    return min(once() for _ in range(10))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def runtime() -> AsyncIterator[Runtime]:
    runtime = Runtime(table_settings().model_copy(update={"cache": Settings().cache, "limits": Settings().limits}))
    runtime.start()
    await runtime.wait_until_loaded()
    yield runtime
    await runtime.stop()


async def longest_silence(ask: Callable[[], Any]) -> float:
    """Without the garbage collector's: how much it has to walk through depends on the tests before this one."""
    gc.collect()
    gc.disable()
    try:
        async with pulse() as watched:
            with suppress(ScoringError):  # whoever has a millisecond is seldom answered
                await ask()
    finally:
        gc.enable()
    return watched.longest_seconds


async def test_dialogues_at_the_limits_leave_the_loop_to_others(runtime: Runtime, control: float):
    silences = {}
    for name, fields in DIALOGUES.items():
        request = decode(DialogueRequest, body_of(fields))
        pipeline = runtime.pipeline()
        silences[name] = await longest_silence(lambda: pipeline.score_dialogue(request, "r", Deadline.after_ms(1)))  # noqa: B023
    assert {name: each / control for name, each in silences.items() if each > CONTROLS * control} == {}


async def test_a_ranking_on_a_context_at_the_limits_leaves_the_loop_to_others(runtime: Runtime, control: float):
    fields = {"context": dialogue(text(850), text(850))["turns"], "candidates": [text(100) + str(n) for n in range(64)]}
    request = decode(RankRequest, body_of(fields))
    silence = await longest_silence(lambda: runtime.pipeline().rank(request, "r", Deadline.after_ms(1)))
    assert silence / control < CONTROLS
