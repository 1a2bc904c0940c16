"""Shared scores in a real Redis: known turns are not computed, a sick Redis costs nothing but computing."""

import logging

from support.fakes import FakeScorer, loaded_fake
from support.processes import RedisServer
from turnscore_core.dialogues import Dialogue
from turnscore_core.engine import Engine
from turnscore_service.cache.redis_scores import RedisScores
from turnscore_wire import Turn


def scored(shared, *texts):
    """Turns computed by an engine of its own, and their values."""
    loaded = {"fake": loaded_fake(FakeScorer())}
    dialogues = [Dialogue(text, [Turn(speaker="system", text=text)]) for text in texts]
    with Engine((), load=lambda _: loaded, shared=shared) as engine:
        results = engine.score(dialogues)
        return engine.turns_computed, [each.turns[0].scores["fake"].value for each in results]


def test_what_one_engine_computed_another_finds_until_the_redis_dies_and_it_computes(tmp_path, caplog):
    now = [0.0]
    server = RedisServer(tmp_path)
    server.start()
    first = RedisScores(server.url, clock=lambda: now[0])
    second = RedisScores(server.url, clock=lambda: now[0])
    try:
        texts = [f"{'word ' * number}{number}" for number in range(1500)]  # more than go in one round trip
        computed, values = scored(first, *texts)
        assert computed == 1500
        assert scored(second, *texts, "new") == (1, [*values, 0.01])
        assert second.found == 1500
        with server.client() as client:
            key = next(iter(client.scan_iter(match="turnscore:*")))
            assert 0 < client.pttl(key) <= 7 * 86_400_000
    finally:
        server.kill()
    with caplog.at_level(logging.WARNING, "turnscore.engine"):
        assert scored(second, "one", "two") == (2, [0.01, 0.01])
        assert len(caplog.records) == 1  # and is then left alone
    server.start()
    try:
        assert scored(second, "three")[0] == 1
        now[0] += 31
        assert scored(second, "four")[0] == 1
        assert scored(second, "four")[0] == 0
    finally:
        for each in (first, second):
            each.close()
        server.kill()
