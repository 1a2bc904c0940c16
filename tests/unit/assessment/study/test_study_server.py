"""The study's server over ASGI: who may do something, and what is shown to no rater."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.studies import ORIGIN, begin, code_of, served_study
from turnscore_assessment.study import workers

RATINGS = {"fun": 70, "repetitive": 20.5}


async def test_nothing_that_a_worker_is_shown_names_a_system_or_which_one_is_degraded(tmp_path: Path) -> None:
    async with served_study(tmp_path) as served:
        [link] = served.invite()
        seen = [await served.agree(link)]
        await served.talk(link, seen[0]["dialogue"]["id"])
        seen.append((await served.get(link)).json())
        text = json.dumps(seen)
        for secret in ("secretly", "degraded", "bots.test", "direction", "negative", "quality"):
            assert secret not in text


async def test_another_worker_s_dialogue_does_not_exist(tmp_path: Path) -> None:
    async with served_study(tmp_path) as served:
        link, dialogue = await begin(served)
        await served.talk(link, dialogue)
        other, own = await begin(served)
        assert own != dialogue
        for act, fields in (
            ("message", {"number": 3, "text": "hi"}),
            ("rating", {"ratings": RATINGS}),
            ("giving-up", {}),
        ):
            theirs = await served.post(other, act, dialogue=dialogue, **fields)
            none = await served.post(other, act, dialogue="abc", **fields)
            assert code_of(theirs) == code_of(none) == (404, "no_such_dialogue")
            assert theirs.text == none.text
        assert (await served.get(other)).json()["dialogue"]["turns"] == []
        await served.post(link, "rating", dialogue=dialogue, ratings=RATINGS)
        rated = await served.post(other, "rating", dialogue=dialogue, ratings=RATINGS)
        assert code_of(rated) == (404, "no_such_dialogue")


async def test_before_agreeing_nothing_can_be_done_and_an_old_text_is_not_agreed_to(tmp_path: Path) -> None:
    async with served_study(tmp_path) as served:
        [link] = served.invite()
        seen = (await served.get(link)).json()
        assert (seen["agreed"], seen["total"], seen["dialogue"]) == (False, 0, None)
        assert code_of(await served.post(link, "begin")) == (409, "not_agreed")
        old = await served.post(link, "agreement", consent_hash="0" * 64)
        assert code_of(old) == (409, "text_changed")
        for _ in range(2):
            done = await served.post(link, "agreement", consent_hash=seen["study"]["consent_hash"])
            assert (done.json()["agreed"], done.json()["total"]) == (True, 2)


async def test_who_leaves_leaves_nothing_behind(tmp_path: Path) -> None:
    async with served_study(tmp_path) as served:
        link, dialogue = await begin(served)
        await served.talk(link, dialogue)
        await served.post(link, "rating", dialogue=dialogue, ratings=RATINGS)
        assert (await served.post(link, "leaving")).json() == {}
        assert code_of(await served.get(link)) == (410, "left")
        assert code_of(await served.post(link, "begin")) == (410, "left")
        stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())  # while the study is served
        assert b"spring" in stored
        assert b"hello 0" not in stored


@pytest.mark.parametrize("link", ["", "unknown.link", "x" * 201, "abc", ".x", "é.é"])
async def test_a_wrong_link_opens_nothing(tmp_path: Path, link: str) -> None:
    async with served_study(tmp_path) as served:
        headers = {b"Authorization": b"Bearer " + link.encode()}
        assert code_of(await served.http.get("/api/standing", headers=headers)) == (401, "unknown_link")


async def test_the_secret_is_compared_in_constant_time_and_stored_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served_study(tmp_path) as served:
        link, other = served.invite(2)
        compared: list[tuple[str, str]] = []

        def compare(given: str, stored: str) -> bool:
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


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Origin": "http://evil.test"}, 403, "foreign_origin"),
        ({"Origin": "null"}, 403, "foreign_origin"),
        ({"Origin": ""}, 403, "foreign_origin"),
        ({"Origin": ORIGIN, "Sec-Fetch-Site": "cross-site"}, 403, "foreign_origin"),
        ({"Origin": ORIGIN, "Content-Type": "text/plain"}, 415, "not_json"),
        ({"Origin": ORIGIN, "Authorization": "Basic abc"}, 401, "unknown_link"),
    ],
)
async def test_only_the_study_s_own_page_may_do_anything(
    tmp_path: Path, headers: dict[str, str], status: int, code: str
) -> None:
    async with served_study(tmp_path) as served:
        [link] = served.invite()
        sent = {"Authorization": f"Bearer {link}", "Content-Type": "application/json", **headers}
        assert code_of(await served.http.post("/api/begin", content=b"{}", headers=sent)) == (status, code)


async def test_a_body_is_measured_before_it_is_read_whole(tmp_path: Path) -> None:
    async with served_study(tmp_path) as served:
        [link] = served.invite()
        headers = {"Authorization": f"Bearer {link}", "Origin": ORIGIN, "Content-Type": "application/json"}
        sent = 0

        async def endless() -> Any:
            nonlocal sent
            while True:
                sent += 1
                yield b"[" * 50_000

        assert code_of(await served.http.post("/api/begin", content=endless(), headers=headers)) == (413, "too_large")
        assert sent < 10
        for body in (b"[" * 90_000, b"{", b"\xff", b"[]"):
            answer = await served.http.post("/api/begin", content=body, headers=headers)
            assert answer.status_code in (409, 422), body


async def test_the_server_answers_under_its_own_names_alone(tmp_path: Path) -> None:
    async with served_study(tmp_path) as served:
        foreign = await served.http.get("/", headers={"Host": "rebound.test"})
        assert foreign.status_code == 421
        assert (await served.http.get("/")).status_code == 200


async def test_every_answer_carries_a_policy_without_inline_or_foreign_scripts(tmp_path: Path) -> None:
    async with served_study(tmp_path) as served:
        for path, status in (("/", 200), ("/study.js", 200), ("/api/standing", 401), ("/none", 404)):
            answer = await served.http.get(path)
            assert answer.status_code == status
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
            assert "unsafe" not in policy
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["cache-control"] == "no-store"
        page = (await served.http.get("/")).text
        assert "<style" not in page
        assert " style=" not in page
        assert " on" not in "".join(part.partition(">")[0] for part in page.split("<button")[1:])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/rating", 405),
        ("POST", "/api/standing", 405),
        ("GET", "/api/export", 404),
        ("GET", "/../plan.py", 404),
    ],
)
async def test_what_does_not_exist_is_refused_in_the_one_shape(
    tmp_path: Path, method: str, path: str, status: int
) -> None:
    async with served_study(tmp_path) as served:
        answer = await served.http.request(method, path)
        assert answer.status_code == status
        assert set(answer.json()["error"]) == {"code", "message"}


async def test_a_fault_is_reported_without_what_it_was_about(tmp_path: Path) -> None:
    async with served_study(tmp_path) as served:
        link, dialogue = await begin(served)
        served.database.run_here(lambda connection: connection.exec_driver_sql("drop table turns"))
        answer = await served.post(link, "message", dialogue=dialogue, number=0, text="my secret")
        assert code_of(answer) == (500, "broken")
        assert "turns" not in answer.text


async def test_a_name_that_no_answer_can_hold_is_refused_as_any_other(tmp_path: Path) -> None:
    async with served_study(tmp_path) as served:
        link, dialogue = await begin(served)
        body = json.dumps({"dialogue": dialogue, "ratings": {"\ud800": 3}})
        headers = {"Authorization": f"Bearer {link}", "Origin": ORIGIN, "Content-Type": "application/json"}
        answer = await served.http.post("/api/rating", content=body, headers=headers)
        assert code_of(answer) == (422, "invalid")
