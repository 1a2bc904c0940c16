"""`POST /v1/rank`: candidates get what they get alone, in one go, whole or not at all; `POST /v1/rerank` too."""

import asyncio
import hashlib

import cohere
import pytest
from support.fakes import NOT_A_NUMBER, POISON, FakeScorer
from support.fed import make_fed_scorer
from support.transports import served_app, settings_with
from turnscore_service.api.http.app import asks
from turnscore_service.settings.service import AdmissionSettings, Settings
from turnscore_wire import ErrorReply, Limits, RankReply

CONTEXT = [{"speaker": "user", "text": "hi there"}]
OWN = {"funny": {"positive": ["haha"], "negative": ["I don't get it."]}}


async def test_the_best_candidate_stands_first_and_equals_keep_their_order(client):
    response = await client.post("/v1/rank", json={"context": CONTEXT, "candidates": ["a", "a b c", "b", "a b c"]})
    reply = RankReply.model_validate_json(response.content)
    assert [(each.index, each.combined) for each in reply.candidates] == [(1, 3), (3, 3), (0, 1), (2, 1)]
    assert reply.weights == {"fake": 1}
    assert reply.request_id == response.headers["x-request-id"]


async def test_a_ranked_candidate_has_the_scores_it_has_alone(serve):
    async with serve(first=FakeScorer(), second=FakeScorer()) as (client, _):
        ranked = (await client.post("/v1/rank", json={"context": CONTEXT, "candidates": ["a", "b c"]})).json()
        for each in ranked["candidates"]:
            asked = {"context": CONTEXT, "response": ["a", "b c"][each["index"]], "cache": "bypass"}
            assert each["scores"] == (await client.post("/v1/score", json=asked)).json()["scores"]


async def test_failing_candidates_come_last_with_their_errors(client):
    candidates = [POISON, "a", NOT_A_NUMBER, "untokenizable", "a b"]
    reply = RankReply.model_validate_json((await client.post("/v1/rank", json={"candidates": candidates})).content)
    failed = await client.post("/v1/rank", json={"candidates": [POISON, NOT_A_NUMBER]})
    assert [each.index for each in reply.candidates] == [4, 1, 0, 2, 3]
    assert [each.errors["fake"].code for each in reply.candidates[2:]] == ["internal"] * 3
    assert (failed.status_code, failed.json()["error"]["code"]) == (500, "internal")


async def test_a_request_is_admitted_whole_or_not_at_all(serve):
    scorer = FakeScorer()
    scorer.gate.clear()
    async with serve(Settings(admission=AdmissionSettings(max_items=3)), fake=scorer) as (client, _):
        first = asyncio.create_task(client.post("/v1/score", json={"response": "a"}))
        await asyncio.to_thread(scorer.started.wait)
        refused = await client.post("/v1/rank", json={"candidates": ["b", "c", "d"]})
        scorer.gate.set()
        assert (await first).status_code == 200
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "overloaded")
    assert scorer.encoded == [1]


async def test_fed_computes_all_candidates_on_one_trunk(serve, tmp_path):
    scorer, backend = make_fed_scorer(tmp_path / "fed")
    candidates = ["one", "two", "three things", "two"] * 4
    async with serve(Settings(), fed=scorer) as (client, _):
        reply = (await client.post("/v1/rank", json={"context": CONTEXT, "candidates": candidates})).json()
        together, backend.tokens_fed = backend.tokens_fed, 0
        for each in reply["candidates"]:
            asked = {"context": CONTEXT, "response": candidates[each["index"]], "cache": "bypass"}
            assert each["scores"] == (await client.post("/v1/score", json=asked)).json()["scores"]
    assert together < backend.tokens_fed / 4


async def test_qualities_of_ones_own_rank_the_candidates_among_themselves(serve, tmp_path):
    scorer, _ = make_fed_scorer(tmp_path / "fed")
    asked = {"context": CONTEXT, "candidates": ["one", "two", "three"], "options": {"fed": {"own_qualities": OWN}}}
    async with serve(Settings(), fed=scorer) as (client, _):
        reply = RankReply.model_validate_json((await client.post("/v1/rank", json=asked)).content)
    values = [each.scores["fed"].value for each in reply.candidates]
    assert values == sorted(values, reverse=True)
    assert [each.combined for each in reply.candidates] == [100, 50, 0]
    assert [each.scores["fed"].percentile for each in reply.candidates] == [None] * 3


KEY = "ts_a-key-for-tests"
DOCUMENTS = ["a", "a b c", "b", "a b"]


@pytest.fixture(scope="module")
def url():
    """Of a service on two fakes that asks for a key."""
    settings = settings_with(auth={"keys": {"chatbot": {"sha256": hashlib.sha256(KEY.encode()).hexdigest()}}})
    with served_app(settings, fake=FakeScorer(), other=FakeScorer()) as (served, _):
        yield served


def test_coheres_first_client_gets_the_best_documents_with_their_texts(url):
    documents = [DOCUMENTS[0], {"text": DOCUMENTS[1]}, *DOCUMENTS[2:]]
    with cohere.Client(KEY, base_url=url) as client:
        reply = client.rerank(model="fake", query="hi there", documents=documents, top_n=2, return_documents=True)
    assert [(each.index, each.relevance_score, each.document.text) for each in reply.results] == [
        (1, 0.03, "a b c"),
        (3, 0.02, "a b"),
    ]
    assert reply.meta.tokens.input_tokens == 7


async def test_coheres_second_client_gets_all_documents_in_order(url):
    async with cohere.AsyncClientV2(KEY, base_url=url) as client:
        reply = await client.rerank(model="other", query="hi there", documents=DOCUMENTS, max_tokens_per_doc=512)
    assert [each.index for each in reply.results] == [1, 3, 0, 2]
    assert reply.id


def test_cohere_says_by_its_own_errors_what_was_refused(url):
    asked = {"query": "hi", "documents": ["a"]}
    with cohere.Client("ts_another", base_url=url) as stranger, pytest.raises(cohere.UnauthorizedError):
        stranger.rerank(**asked)
    with cohere.ClientV2(KEY, base_url=url) as client, pytest.raises(cohere.BadRequestError) as refused:
        client.rerank(**asked, model="rerank-v3.5")
    error = ErrorReply.model_validate(refused.value.body).error
    assert (error.field, error.message) == ("model", "no such scorer is loaded; loaded: fake, other")


async def test_a_document_is_as_relevant_as_its_candidate_is_good(serve):
    async with serve(first=FakeScorer(), second=FakeScorer()) as (client, _):
        ranked = (await client.post("/v1/rank", json={"context": CONTEXT, "candidates": DOCUMENTS})).json()
        response = await client.post("/v1/rerank", json={"query": CONTEXT[0]["text"], "documents": DOCUMENTS})
    reply = response.json()
    assert [(each["index"], each["relevance_score"]) for each in reply["results"]] == [
        (each["index"], each["combined"] / 100) for each in ranked["candidates"]
    ]
    assert (reply["id"], reply["model"]) == (response.headers["x-request-id"], "first:1.0.0+second:1.0.0")
    assert reply["usage"]["total_tokens"] == sum(
        score["tokens"]["used"] for each in ranked["candidates"] for score in each["scores"].values()
    )


async def test_a_document_without_a_score_has_no_result_and_is_named(client):
    reply = (await client.post("/v1/rerank", json={"query": "hi", "documents": [POISON, "a"]})).json()
    failed = await client.post("/v1/rerank", json={"query": "hi", "documents": [POISON]})
    assert [each["index"] for each in reply["results"]] == [1]
    assert reply["meta"]["warnings"] == ["documents.0 could not be scored: internal"]
    assert (failed.status_code, failed.json()["error"]["code"]) == (500, "internal")


WRONG_RANKINGS = [
    ({}, "invalid_request", "query"), ({"query": " "}, "invalid_request", "query"),
    ({"query": "a" * 21}, "too_large", "query"), ({"documents": []}, "invalid_request", "documents"),
    ({"documents": ["a", {"txt": "b"}]}, "invalid_request", "documents.1"),
    ({"documents": ["a"] * 100_000}, "too_large", "documents"),
    ({"documents": ["a", "a" * 21]}, "too_large", "documents.1"), ({"top_n": 0}, "invalid_request", "top_n"),
    ({"model": "nobody"}, "invalid_request", "model"),
    ({"relevant_spans": {}}, "invalid_request", "relevant_spans"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "code", "field"), WRONG_RANKINGS)
@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
async def test_a_refusal_names_the_field_as_the_client_sent_it(serve, path, fields, code, field):
    limits = Settings(limits=Limits(max_text_chars=20, max_turns=1, max_candidates=2))
    async with serve(limits, fake=FakeScorer()) as (client, _):
        whole = {"query": "hi", "documents": ["a"], **fields} if fields else {"documents": ["a"]}
        error = ErrorReply.model_validate_json((await client.post(path, json=whole)).content).error
    assert (error.code, error.field) == (code, field)


async def test_a_full_scorer_sheds_only_the_reranking_that_asks_it(serve):
    async with serve(fake=FakeScorer(), other=FakeScorer()) as (_, runtime):
        models = runtime.pipeline().model_set
        assert asks(models, "rerank", b'{"query": "a"}', "fake")
        assert asks(models, "rerank", b'{"model": "fake"}', "fake")
        assert not asks(models, "rerank", b'{"model": "other"}', "fake")
