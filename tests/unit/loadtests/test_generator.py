"""What loads ask, and the generator: every call is settled once, times count from when it was due."""

import asyncio
import itertools
import json
from collections import Counter
from itertools import islice

import pytest
from support.plain_http import SCORED, plain_server
from turnscore_core.inference.tokenizer import TextTokenizer
from turnscore_load.generator import Job, http_generator, run_job, score_request
from turnscore_load.traffic import LENGTH_MIXES, ExactTraffic, Traffic, TrafficSettings
from turnscore_models.bundle import starter_bundles
from turnscore_wire import Limits, ScoreRequest


def asks(count, user="", **settings):
    traffic = Traffic(TrafficSettings(**settings), user)
    return [traffic.next_ask() for _ in range(count)]


def test_every_item_is_one_that_the_service_takes():
    limits = Limits()
    for ask in islice(asks(3000, scorers=("fed", "engagement"), deadline_ms=700), 3000):
        request = ScoreRequest.model_validate(ask.item)
        assert (request.scorers, request.deadline_ms) == (["fed", "engagement"], 700)
        assert len(request.context) <= limits.max_turns
        assert len(json.dumps(ask.item)) <= limits.max_body_bytes


ENGAGEMENT = next(folder for folder in starter_bundles() if folder.name == "engagement") / "tokenizer.json"


def texts_of(item):
    return item["context"][0]["text"], item["response"]


@pytest.mark.parametrize("mix", LENGTH_MIXES.values(), ids=lambda mix: mix.name)
def test_exact_turns_have_the_drawn_lengths_in_tokens_and_no_row_is_cut(mix):
    tokenizer = TextTokenizer.of(ENGAGEMENT)
    items = ExactTraffic(ENGAGEMENT, 128).items(mix, 100)
    rows = [[len(ids) + 2 for ids in tokenizer.encode(list(texts_of(item)))] for item in items]
    lengths = sorted(map(sum, rows))
    assert mix.least <= lengths[0] < 1.2 * mix.least
    assert mix.most / 1.2 < lengths[-1] <= mix.most
    assert max(map(max, rows)) <= 128


ITEM = {"response": "ok"}


def request(port):
    return score_request(port, ITEM)


def outcomes(stage):
    return {(call.answer.outcome, call.answer.why) for call in stage.calls}


async def test_open_loop_sends_at_its_rate_though_nothing_is_answered():
    all_came = asyncio.Event()
    came = itertools.count(1)

    async def hold(path, body):
        if next(came) == 60:
            all_came.set()
        await all_came.wait()
        return SCORED

    async with plain_server(hold) as port:
        generator = http_generator(port, 1000)
        stage = await generator.run_open([request(port)] * 60, per_second=300)
        generator.close()
    assert outcomes(stage) == {("answered", "")}
    assert stage.seconds == pytest.approx(0.2)
    due = sorted(call.due_at - stage.began_at for call in stage.calls)
    assert due == pytest.approx([number / 300 for number in range(60)])
    assert all(call.sent_at >= call.due_at for call in stage.calls)
    assert max(call.took_ms for call in stage.calls) >= 1000 * 59 / 300  # the first waited from when it was due


async def test_a_job_sends_every_body_once_and_a_refused_one_again():
    bodies = Counter()

    async def refuse_once(path, body):
        bodies[json.loads(body)["response"]] += 1
        answer = (429, {"Retry-After": "1"}, b'{"error": {"retry_after_ms": 10}}')
        return answer if bodies.total() == 3 else SCORED

    async with plain_server(refuse_once) as port:
        sent = [json.dumps({"response": str(number)}) for number in range(20)]
        done = await run_job(Job(port=port, path="/v1/score", bodies=sent, clients=4, keeps_replies=True))
    assert (done["answered"], done["refused"], done["failed"], len(done["latencies_ms"])) == (20, 1, 0, 20)
    assert (len(bodies), bodies.total(), len(done["replies"])) == (20, 21, 20)
