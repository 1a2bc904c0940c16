"""The study as a server: who may do something, each thing done once, what it leaves behind, and slow connections."""

import asyncio
import contextlib
import json
from contextlib import suppress

import pytest
from sqlalchemy import select
from support.conditions import until
from support.studies import ORIGIN, ScriptedBot, begin, code_of, served_study
from support.transports import listening
from turnscore_assessment.errors import TooFewError
from turnscore_assessment.ratings.rating_file import read_ratings, write_ratings
from turnscore_assessment.study import recordings, workers
from turnscore_assessment.study.chatbots import Chatbots
from turnscore_assessment.study.database import dialogues
from turnscore_assessment.study.recordings import BlindScorer, export_ratings, read_recordings, score_by
from turnscore_assessment.study.server import TimedProtocol
from turnscore_assessment.study.workers import delete_texts
from turnscore_client import ConnectionFailedError, InternalError, InvalidRequestError, TooLargeError, Turn
from turnscore_client.testing import MockTurnScore

RATINGS = {"fun": 70, "repetitive": 20.5}


@pytest.fixture
async def served(tmp_path):
    async with served_study(tmp_path) as study:
        yield study


async def test_nothing_that_a_worker_is_shown_names_a_system_or_which_one_is_degraded(served):
    [link] = served.invite()
    seen = [await served.agree(link)]
    await served.talk(link, seen[0]["dialogue"]["id"])
    seen.append((await served.get(link)).json())
    text = json.dumps(seen)
    for secret in ("secretly", "degraded", "bots.test", "direction", "negative", "quality"):
        assert secret not in text


async def test_another_worker_s_dialogue_does_not_exist(served):
    link, dialogue = await begin(served)
    await served.talk(link, dialogue)
    other, own = await begin(served)
    assert own != dialogue
    acts = {"message": {"number": 3, "text": "hi"}, "rating": {"ratings": RATINGS}, "giving-up": {}}
    for act, fields in acts.items():
        theirs = await served.post(other, act, dialogue=dialogue, **fields)
        none = await served.post(other, act, dialogue="abc", **fields)
        assert code_of(theirs) == code_of(none) == (404, "no_such_dialogue")
        assert theirs.text == none.text
    assert (await served.get(other)).json()["dialogue"]["turns"] == []
    await served.post(link, "rating", dialogue=dialogue, ratings=RATINGS)
    rated = await served.post(other, "rating", dialogue=dialogue, ratings=RATINGS)
    assert code_of(rated) == (404, "no_such_dialogue")


async def test_before_agreeing_nothing_can_be_done_and_an_old_text_is_not_agreed_to(served):
    [link] = served.invite()
    seen = (await served.get(link)).json()
    assert (seen["agreed"], seen["total"], seen["dialogue"]) == (False, 0, None)
    assert code_of(await served.post(link, "begin")) == (409, "not_agreed")
    old = await served.post(link, "agreement", consent_hash="0" * 64)
    assert code_of(old) == (409, "text_changed")
    for _ in range(2):
        done = await served.post(link, "agreement", consent_hash=seen["study"]["consent_hash"])
        assert (done.json()["agreed"], done.json()["total"]) == (True, 2)


async def test_who_leaves_leaves_nothing_behind(served, tmp_path):
    link, dialogue = await begin(served)
    await served.talk(link, dialogue)
    await served.post(link, "rating", dialogue=dialogue, ratings=RATINGS)
    assert (await served.post(link, "leaving")).json() == {}
    assert code_of(await served.get(link)) == (410, "left")
    assert code_of(await served.post(link, "begin")) == (410, "left")
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())  # while the study is served
    assert b"spring" in stored
    assert b"hello 0" not in stored


async def test_a_wrong_link_opens_nothing(served):
    for link in ("", "unknown.link", "x" * 201, "abc", ".x", "é.é"):
        headers = {b"Authorization": b"Bearer " + link.encode()}
        assert code_of(await served.http.get("/api/standing", headers=headers)) == (401, "unknown_link"), link


async def test_the_secret_is_compared_in_constant_time_and_stored_nowhere(served, tmp_path, monkeypatch):
    link, other = served.invite(2)
    compared = []

    def compare(given, stored):
        compared.append((given, stored))
        return given == stored

    monkeypatch.setattr(workers.hmac, "compare_digest", compare)
    assert (await served.get(link)).status_code == 200
    assert (await served.get(f"{link.code}.{other.secret}")).status_code == 401
    assert (await served.get(f"unknown.{link.secret}")).status_code == 401
    assert len(compared) == 3  # also where there is no such worker
    assert all(len(given) == len(stored) == 64 for given, stored in compared)
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert link.code.encode() in stored
    assert link.secret.encode() not in stored


FOREIGN_REQUESTS = [
    ({"Origin": "http://evil.test"}, 403, "foreign_origin"),
    ({"Origin": "null"}, 403, "foreign_origin"),
    ({"Origin": ""}, 403, "foreign_origin"),
    ({"Origin": ORIGIN, "Sec-Fetch-Site": "cross-site"}, 403, "foreign_origin"),
    ({"Origin": ORIGIN, "Content-Type": "text/plain"}, 415, "not_json"),
    ({"Origin": ORIGIN, "Authorization": "Basic abc"}, 401, "unknown_link"),
]


@pytest.mark.parametrize(("headers", "status", "code"), FOREIGN_REQUESTS)
async def test_only_the_study_s_own_page_may_do_anything(served, headers, status, code):
    [link] = served.invite()
    sent = {"Authorization": f"Bearer {link}", "Content-Type": "application/json", **headers}
    assert code_of(await served.http.post("/api/begin", content=b"{}", headers=sent)) == (status, code)


async def test_a_body_is_measured_before_it_is_read_whole(served):
    [link] = served.invite()
    headers = {"Authorization": f"Bearer {link}", "Origin": ORIGIN, "Content-Type": "application/json"}
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 1
            yield b"[" * 50_000

    assert code_of(await served.http.post("/api/begin", content=endless(), headers=headers)) == (413, "too_large")
    assert sent < 10
    for body in (b"[" * 90_000, b"{", b"\xff", b"[]"):
        answer = await served.http.post("/api/begin", content=body, headers=headers)
        assert answer.status_code in (409, 422), body


async def test_every_answer_carries_a_policy_without_inline_or_foreign_scripts(served):
    for path, status in (("/", 200), ("/study.js", 200), ("/api/standing", 401), ("/none", 404)):
        answer = await served.http.get(path)
        assert answer.status_code == status
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
    page = (await served.http.get("/")).text
    assert not any(inline in page for inline in ("<style", " style=", " onclick="))


async def test_foreign_names_and_what_does_not_exist_are_refused_in_the_one_shape(served):
    assert (await served.http.get("/", headers={"Host": "rebound.test"})).status_code == 421
    wrong = {("GET", "/api/rating"): 405, ("POST", "/api/standing"): 405, ("GET", "/api/export"): 404}
    for (method, path), status in {**wrong, ("GET", "/../plan.py"): 404}.items():
        answer = await served.http.request(method, path)
        assert answer.status_code == status, path
        assert set(answer.json()["error"]) == {"code", "message"}


async def test_a_message_that_is_sent_twice_is_stored_and_asked_once(tmp_path):
    bot = ScriptedBot()
    async with served_study(tmp_path, bot.transport) as served:
        link, dialogue = await begin(served)
        first = await served.post(link, "message", dialogue=dialogue, number=0, text=" hello ")
        again = await served.post(link, "message", dialogue=dialogue, number=0, text="hello")
        assert first.json() == again.json() == {"reply": "reply 1"}
        [asked] = bot.asked
        assert asked["messages"] == [{"role": "user", "content": "hello"}]
        for number, text in ((0, "another text"), (2, "too early"), (1000, "far too early")):
            refused = await served.post(link, "message", dialogue=dialogue, number=number, text=text)
            assert code_of(refused) == (409, "out_of_turn")
        assert len((await served.get(link)).json()["dialogue"]["turns"]) == 2


async def test_while_a_reply_is_under_way_the_message_waits_and_nothing_else_is_taken(tmp_path):
    bot = ScriptedBot()
    async with served_study(tmp_path, bot.transport) as served:
        link, dialogue = await begin(served)
        bot.gate.clear()
        asking = asyncio.create_task(served.post(link, "message", dialogue=dialogue, number=0, text="hello"))
        await until(lambda: bot.asked)
        again = await served.post(link, "message", dialogue=dialogue, number=0, text="hello")
        assert code_of(again) == (409, "busy")
        assert len((await served.get(link)).json()["dialogue"]["turns"]) == 1  # as a second tab sees it
        bot.gate.set()
        assert (await asking).json() == {"reply": "reply 1"}
        assert len(bot.asked) == 1


async def test_who_asked_and_died_holds_a_message_up_only_for_a_while(tmp_path):
    bot = ScriptedBot()
    async with served_study(tmp_path, bot.transport) as served:
        link, dialogue = await begin(served)
        bot.gate.clear()
        dying = asyncio.create_task(served.post(link, "message", dialogue=dialogue, number=0, text="hello"))
        await until(lambda: bot.asked)
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
        bot.gate.set()
        served.clock.now += 14
        assert code_of(await served.post(link, "message", dialogue=dialogue, number=0, text="hello")) == (409, "busy")
        served.clock.now += 2  # reply_seconds and ten more are over
        again = await served.post(link, "message", dialogue=dialogue, number=0, text="hello")
        assert again.json() == {"reply": "reply 2"}


async def test_a_system_that_fails_is_asked_again_and_given_up_after_three_times(tmp_path):
    bot = ScriptedBot()
    bot.status = 500
    async with served_study(tmp_path, bot.transport) as served:
        link, dialogue = await begin(served)
        for _ in range(2):
            failed = await served.post(link, "message", dialogue=dialogue, number=0, text="hello")
            assert code_of(failed) == (502, "no_reply")
            assert code_of(await served.post(link, "giving-up", dialogue=dialogue)) == (409, "still_answers")
        assert "500" not in failed.text
        bot.status = 200
        assert (await served.post(link, "message", dialogue=dialogue, number=0, text="hello")).status_code == 200
        bot.status = 500
        for _ in range(3):
            await served.post(link, "message", dialogue=dialogue, number=1, text="hello")
        assert (await served.get(link)).json()["dialogue"]["may_give_up"]
        standing = (await served.post(link, "giving-up", dialogue=dialogue)).json()
        assert (standing["done"], standing["dialogue"]) == (1, None)
        assert code_of(await served.post(link, "rating", dialogue=dialogue, ratings=RATINGS)) == (409, "not_open")


async def test_a_fault_of_our_own_while_asking_leaves_the_message_to_be_asked_again(served, monkeypatch):
    link, dialogue = await begin(served)
    with monkeypatch.context() as broken:
        broken.setattr(Chatbots, "reply", lambda *_: 1 / 0)
        failed = await served.post(link, "message", dialogue=dialogue, number=0, text="hello")
        assert code_of(failed) == (500, "broken")
        assert "division" not in failed.text
    again = await served.post(link, "message", dialogue=dialogue, number=0, text="hello")
    assert again.status_code == 200


async def test_a_rating_needs_all_inputs_and_is_taken_once(served):
    link, dialogue = await begin(served)
    await served.talk(link, dialogue, inputs=2)
    early = await served.post(link, "rating", dialogue=dialogue, ratings=RATINGS)
    assert code_of(early) == (409, "too_few_inputs")
    await served.talk(link, dialogue, inputs=4)
    fifth = await served.post(link, "message", dialogue=dialogue, number=4, text="more")
    assert code_of(fifth) == (409, "no_more_inputs")
    first = await served.post(link, "rating", dialogue=dialogue, ratings=RATINGS)
    again = await served.post(link, "rating", dialogue=dialogue, ratings=RATINGS)
    assert first.json() == again.json()
    other = await served.post(link, "rating", dialogue=dialogue, ratings={**RATINGS, "fun": 71})
    assert code_of(other) == (409, "already_rated")
    late = await served.post(link, "message", dialogue=dialogue, number=4, text="more")
    assert code_of(late) == (409, "not_open")


WRONG_RATINGS = [
    ({"fun": 70}, "ratings.repetitive: is missing"),
    ({**RATINGS, "kind": 3}, "ratings.kind: is not a criterion of the study"),
    ({**RATINGS, "fun": float("nan")}, "ratings.fun: nan is not within 0 and 100"),
    ({**RATINGS, "fun": 10**400}, "ratings.fun: input should be a valid number"),
    ({**RATINGS, "\ud800": 3}, "ratings."),  # a name that no answer can hold
]


@pytest.mark.parametrize(("ratings", "reason"), WRONG_RATINGS)
async def test_a_wrong_rating_is_named(served, ratings, reason):
    link, dialogue = await begin(served)
    await served.talk(link, dialogue)
    answer = await served.post(link, "rating", dialogue=dialogue, ratings=ratings)
    assert code_of(answer) == (422, "invalid")
    assert answer.json()["error"]["message"].startswith(reason)


@pytest.mark.parametrize(("text", "reason"), [("", "must not be empty"), ("é" * 51, "may have at most 50 characters")])
async def test_a_wrong_message_is_refused_and_leaves_nothing(served, text, reason):
    link, dialogue = await begin(served)
    answer = await served.post(link, "message", dialogue=dialogue, number=0, text=text)
    assert answer.json()["error"] == {"code": "invalid", "message": f"text: {reason}"}
    assert (await served.get(link)).json()["dialogue"]["turns"] == []
    most = await served.post(link, "message", dialogue=dialogue, number=0, text="\U0001f600" * 50)
    assert most.status_code == 200


async def test_halves_of_characters_and_nul_are_stored_as_what_every_database_keeps(served):
    link, dialogue = await begin(served)
    assert (await served.post(link, "message", dialogue=dialogue, number=0, text="a\ud800b\0c")).status_code == 200
    assert (await served.get(link)).json()["dialogue"]["turns"][0]["text"] == "a\ufffdb\ufffdc"


async def test_the_number_of_open_dialogues_is_bounded(tmp_path):
    async with served_study(tmp_path, limits={"open_dialogues": 2, "idle_minutes": 30}) as served:
        first, dialogue = await begin(served)
        await begin(served)
        [third] = served.invite()
        assert (await served.agree(third))["error"]["code"] == "full"
        assert (await served.get(first)).json()["dialogue"]["id"] == dialogue
        served.clock.now += 29 * 60
        await served.talk(first, dialogue, inputs=1)
        served.clock.now += 2 * 60  # the second one is idle
        assert (await served.post(third, "begin")).json()["dialogue"] is not None
        assert (await served.post(first, "begin")).json()["dialogue"]["id"] == dialogue


async def rate_all(served, link):
    standing = await served.agree(link)
    while standing["dialogue"]:
        dialogue = standing["dialogue"]["id"]
        await served.talk(link, dialogue)
        served.clock.now += 90
        await served.post(link, "rating", dialogue=dialogue, ratings=RATINGS)
        standing = (await served.post(link, "begin")).json()


def export(served, *, with_texts=True):
    plan = served.study.plan
    return served.database.run_here(
        export_ratings, served.database.study_id, plan, read_recordings(plan), with_texts=with_texts
    )


async def test_the_export_is_a_ratings_file_that_names_no_person(served, tmp_path):
    links = served.invite(2)
    for link in links:
        await rate_all(served, link)
    found = export(served)
    path = tmp_path / "ratings.jsonl"
    write_ratings(path, found)
    read = read_ratings(path)
    assert read == found
    assert read.description.names == ["fun", "repetitive"]
    assert [dialogue.position for dialogue in read.dialogues] == [0, 1, 0, 1]
    systems = {dialogue.system: dialogue.degraded for dialogue in read.dialogues}
    assert systems == {"secretly-good": False, "secretly-bad": True}
    assert len({dialogue.worker for dialogue in read.dialogues}) == 2
    assert {dialogue.seconds for dialogue in read.dialogues} == {90.0}
    assert [turn.text for turn in read.dialogues[0].turns][::2] == ["hello 0", "hello 1", "hello 2"]
    text = path.read_text()
    assert all(link.code not in text and link.secret not in text for link in links)


async def test_texts_can_be_left_out_and_deleted_and_the_ratings_stay(served):
    [link] = served.invite()
    with pytest.raises(TooFewError, match="no rated dialogue yet"):
        export(served)
    await rate_all(served, link)
    with_texts, without = export(served), export(served, with_texts=False)
    assert all(dialogue.turns for dialogue in with_texts.dialogues)
    assert served.database.run_here(delete_texts, served.database.study_id) == 12
    assert export(served) == without
    assert not any(dialogue.turns for dialogue in without.dialogues)


async def test_recorded_dialogues_are_exported_with_their_names(tmp_path):
    turns = [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello"}]
    (tmp_path / "a.jsonl").write_text(json.dumps({"id": "d1", "turns": turns}))
    systems = [{"name": "A", "dialogues": str(tmp_path / "a.jsonl")}]
    async with served_study(tmp_path, systems=systems) as served:
        [link] = served.invite()
        standing = await served.agree(link)
        assert standing["study"]["kind"] == "recorded"
        assert standing["dialogue"]["turns"] == turns
        talk = await served.post(link, "message", dialogue=standing["dialogue"]["id"], number=0, text="hi")
        assert talk.json()["error"]["code"] == "not_open"
        await served.post(link, "rating", dialogue=standing["dialogue"]["id"], ratings=RATINGS)
        [dialogue] = export(served).dialogues
    assert (dialogue.dialogue, dialogue.system, len(dialogue.turns)) == ("d1", "A", 2)


def make_scores(served, score):
    return BlindScorer(served.database, read_recordings(served.study.plan), score)


def read_scores(served):
    return list(served.database.run_here(lambda c: c.execute(select(dialogues.c.scores)).scalars().all()))


async def test_while_turnscore_is_down_the_study_goes_on_and_is_scored_later(served, monkeypatch):
    monkeypatch.setattr(recordings, "POLL_SECONDS", 0.01)
    is_down, tried = True, 0

    async def score(turns):
        nonlocal tried
        tried += 1
        if is_down:
            raise ConnectionFailedError("no service there")
        return {"engagement": 0.5, "turns": len(turns)}

    scoring = asyncio.create_task(make_scores(served, score).run())
    [link] = served.invite()
    await rate_all(served, link)
    assert (await served.get(link)).json()["finished"]
    await until(lambda: tried > 2)
    assert read_scores(served) == [None, None]
    is_down = False
    await until(lambda: None not in read_scores(served))
    scoring.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await scoring
    assert [dialogue.scores for dialogue in export(served).dialogues] == [{"engagement": 0.5, "turns": 6}] * 2
    assert "engagement" not in (await served.get(link)).text


TOO_LONG, BAD_TEXT = TooLargeError("long"), InvalidRequestError("bad", field="turns.0.text")


@pytest.mark.parametrize(
    ("error", "kept"), [(BAD_TEXT, [{}, {}]), (TOO_LONG, [{}, {}]), (InternalError("oops"), [None, None])]
)
async def test_a_dialogue_that_cannot_be_scored_holds_no_other_up(served, error, kept):
    async def score(_turns):
        raise error

    [link] = served.invite()
    await rate_all(served, link)
    scores = make_scores(served, score)
    assert await scores.score_waiting() == 2
    assert await scores.score_waiting() == 0
    assert read_scores(served) == kept


async def test_a_scorer_that_the_service_has_not_is_no_fault_of_the_dialogue(served):
    async def score(_turns):
        raise InvalidRequestError("unknown", field="scorers.0")

    [link] = served.invite()
    await rate_all(served, link)
    with pytest.raises(InvalidRequestError):
        await make_scores(served, score).score_waiting()
    assert read_scores(served) == [None, None]


async def test_the_scores_are_the_means_that_the_service_gives_the_system_s_turns(tmp_path):
    service = MockTurnScore()
    async with served_study(tmp_path) as served, service.async_client() as client:
        [link] = served.invite()
        await rate_all(served, link)
        await make_scores(served, score_by(client, ["engagement"])).score_waiting()
        scored = export(served).dialogues
        said = [Turn(speaker=turn.speaker, text=turn.text) for turn in scored[0].turns]
        reply = await client.score_dialogue(said, scorers=["engagement"])
    mean = sum(turn.scores["engagement"].value for turn in reply.turns) / len(reply.turns)
    assert scored[0].scores == {"engagement": pytest.approx(mean)}
    assert service.requests[0].body["scorers"] == ["engagement"]


REQUEST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"


class HastyProtocol(TimedProtocol):
    request_seconds = 0.2


async def echo(scope, receive, send):
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def address():
    """Host and port of a server in a hurry."""
    async with listening(echo, http=HastyProtocol, lifespan="off", timeout_keep_alive=1) as found:
        yield found.split(":")


@pytest.mark.parametrize("sent", [b"", REQUEST[:20], REQUEST, REQUEST + b"abc", REQUEST + b"abcdePOST"])
async def test_a_connection_whose_request_does_not_arrive_is_ended(address, sent):
    reader, writer = await asyncio.open_connection(*address)
    writer.write(sent)
    async with asyncio.timeout(10):
        with suppress(ConnectionError):  # which an aborted connection may end in
            while await reader.read(1000):
                pass
    writer.close()


async def test_a_connection_that_sends_whole_requests_stays_open_between_them(address):
    reader, writer = await asyncio.open_connection(*address)
    for _ in range(3):
        writer.write(REQUEST + b"abcde")
        async with asyncio.timeout(10):
            assert (await reader.readuntil(b"abcde")).startswith(b"HTTP/1.1 200")
        await asyncio.sleep(2 * HastyProtocol.request_seconds)
    writer.close()
