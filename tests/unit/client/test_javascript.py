"""The client for JavaScript: its own tests in Node, its names, types and copies; and it does what Python's does."""

import asyncio
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest
import turnscore_client
import turnscore_wire.requests
from support.fakes import FakeScorer
from support.plain_http import plain_server_in_a_thread
from support.transports import served_app, settings_with
from turnscore_client import ErrorCode, InvalidRequestError, TurnScoreClient, TurnScoreError, read_messages
from turnscore_client._options import CallOptions, ClientOptions, TurnOptions
from turnscore_client.testing import ManualClock, MockTurnScore
from turnscore_service.api.page import read_page

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "clients" / "javascript"
TYPES = (FOLDER / "src" / "turnscore.d.ts").read_text() + (FOLDER / "testing.d.ts").read_text()
NODE = shutil.which("node")
TSC = shutil.which("tsc", path=f"{ROOT}/build/tools/node_modules/.bin:{os.environ['PATH']}")
KEY = "ts_secret"

# What only Python has, each with its reason.
PYTHON_ONLY = {
    **dict.fromkeys(["TurnScoreGrpcClient", "AsyncTurnScoreGrpcClient"], "browsers speak no gRPC"),
    **dict.fromkeys(["MockTurnScore.grpc_client", "MockTurnScore.async_grpc_client"], "browsers speak no gRPC"),
    **dict.fromkeys(["ItemLike", "MessageLike", "TurnLike", "Options"], "plain objects are all that JavaScript has"),
    **dict.fromkeys(["ScoringOptions", "SimilarityOptions"], "fields of the request, whose types are the wire's"),
    **dict.fromkeys(["Tls", "tls"], "encryption is the runtime's"),
    "__version__": "a page has no installed packages",
    "TurnScoreClient.aclose": "connections are the runtime's",
    "MockTurnScore.async_client": "its one client is asynchronous",
}
# By the name in Python, where it is not the same in camel case.
RENAMED = {
    "Conversation": "LiveConversation", "aclose": "close", "transport": "fetch", "sleep_async": "sleep",
    "seconds": "ms", "timeout_seconds": "timeoutMs",
}  # fmt: skip
BUILT_IN = {"Error", "EventTarget"}


def camel(name):
    name = name.removeprefix("Async")
    return re.sub(r"_(\w)", lambda found: found[1].upper(), RENAMED.get(name, name))


def fields_of(name):
    """The members of an interface or class of the types, with those that it inherits."""
    head = rf"^(?:export )?(?:interface|class) {name}(?:<[^>]*>)?(?: extends ([\w, ]+?))?(?: implements \w+)? "
    found = re.search(head + r"\{(?:\}|\n(.*?)^\})", TYPES, re.MULTILINE | re.DOTALL)
    assert found, name
    own = set(re.findall(r"^  (?:readonly |get )?(\w+)(?=[?:(<])", found[2] or "", re.MULTILINE))
    return own.union(*(fields_of(above) for above in (found[1] or "").split(", ") if above and above not in BUILT_IN))


def refusal(status, code, retry_after_ms=None, **headers):
    detail = {"code": code, "message": "no", "retry_after_ms": retry_after_ms}
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, told, json.dumps({"error": detail, "request_id": "r"}).encode()


TIMING = b'{"total": 0, "tokenize": 0, "queue": 0, "inference": 0}'
SCORED = (200, {}, b'{"request_id": "r", "scores": {}, "errors": {}, "timing_ms": %s}' % TIMING)
LATER = {"Date": "Thu, 26 Nov 2026 10:00:00 GMT", "Retry_After": "Thu, 26 Nov 2026 10:01:00 GMT"}
# What a service answers, the last answer again and again; the options of the client, and of the call.
SCRIPTS = [
    ([refusal(429, "overloaded", 20), refusal(503, "not_ready", Retry_After="0.02"), None, SCORED], {}, {}),
    ([SCORED], {}, {"timeout_seconds": 0}),
    (["slow"], {}, {"timeout_seconds": 1.5}),
    ([refusal(429, "overloaded", 60_000)], {}, {}),
    ([refusal(503, "not_ready", Retry_After="60")], {}, {}),
    ([refusal(503, "not_ready", **LATER)], {}, {}),
    ([refusal(429, "overloaded", 500), SCORED], {}, {"deadline_ms": 200}),
    ([refusal(429, "overloaded", 1)], {"max_retries": 2}, {}),
    ([None], {"max_retries": 1}, {}),
    ([(502, {}, b"<html>"), SCORED], {}, {}),
    ([(200, {}, b"{}")], {}, {}),
    ([(307, {"Location": "/elsewhere"}, b"")], {}, {}),
    *[([refusal(400, code)], {}, {}) for code in ("invalid_request", "mood")],
    *[([refusal(status, "internal")], {}, {}) for status in (200, 500)],
    *[([refusal(401, "unauthenticated")], {}, {}), ([refusal(404, "not_found")], {}, {})],
    *[([refusal(413, "too_large")], {}, {}), ([refusal(504, "deadline_exceeded")], {}, {})],
]


def follow(base, place):
    _, own, call = SCRIPTS[place]
    with TurnScoreClient(f"{base}/python/{place}", **own) as client:
        try:
            client.score(response="a", **call)
        except TurnScoreError as error:
            return [error.code, getattr(error, "retry_after_ms", None)]
    return [None, None]


@pytest.fixture(scope="module")
def javascript():
    """What both clients make of the scripts, and JavaScript's answers to the questions of compare.mjs."""
    if NODE is None:
        pytest.skip("there is no Node: apt-get install nodejs")
    asked = Counter()

    async def behave(path, _):
        _, client, place, *_ = path.split("/")
        asked[f"{client}/{place}"] += 1
        answers = SCRIPTS[int(place)][0]
        answer = answers[min(asked[f"{client}/{place}"], len(answers)) - 1]
        return await asyncio.sleep(60) if answer == "slow" else answer

    scripts = []
    for _, own, call in SCRIPTS:
        times = {"timeoutMs": 1000 * call["timeout_seconds"]} if "timeout_seconds" in call else {}
        options = {camel(name): value for name, value in own.items()}
        deadline = {name: value for name, value in call.items() if name == "deadline_ms"}
        scripts.append({"options": options, "call": times, "request": {"response": "a", **deadline}})
    with plain_server_in_a_thread(behave) as port:
        base, compare = f"http://127.0.0.1:{port}", Path(__file__).with_name("compare.mjs")
        given = json.dumps({"scripts": scripts, "base": base})
        done = subprocess.run([NODE, compare], input=given, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        with ThreadPoolExecutor(len(SCRIPTS)) as threads:
            followed = list(threads.map(lambda place: follow(base, place), range(len(SCRIPTS))))
    return {**json.loads(done.stdout), "followed": followed, "asked": asked}


def test_calls_are_retried_refused_and_given_up_as_in_python(javascript):
    assert javascript["scripts"] == javascript["followed"]
    codes = {code for code, _ in javascript["scripts"]}
    assert codes == {None, *ErrorCode, "connection_failed", "unexpected_reply"}
    places, asked = range(len(SCRIPTS)), javascript["asked"]
    counts, same = ([asked[f"{client}/{place}"] for place in places] for client in ("javascript", "python"))
    assert counts == same
    assert counts[:2] == [4, 0]


def test_messages_are_read_as_in_python(javascript):
    def read(messages):
        try:
            mapped = read_messages(messages)
        except InvalidRequestError as error:
            return {"field": error.field, "message": error.message}
        turns = [{"speaker": each.speaker, "text": each.text} for each in mapped.turns]
        counted = {"indices": mapped.indices, "skipped": mapped.skipped}
        return {"turns": turns, **counted, "goesOn": mapped.goes_on, "endsSilent": mapped.ends_silent}

    for messages, told in javascript["messages"]:
        assert told == read(messages), messages


def mock_of_both():
    scores = {"quality": 0.25, "reaction": 0.2, "sentiment": 0.75}
    return MockTurnScore(scores, thresholds={"quality": 0.5}, signals={"reaction": ["frustrated"]})


def test_conversations_go_on_break_and_are_reopened_as_in_python(javascript):
    def talk(opening, max_reopenings, steps):
        mock, told = mock_of_both(), []
        with mock.client() as client, client.conversation(**opening, max_reopenings=max_reopenings) as conversation:
            for name, *given in steps:
                act = getattr(conversation if name.startswith("say") else mock, re.sub("([A-Z])", r"_\1", name).lower())
                try:
                    scored = act(*given)
                    dialogue = {name: each.model_dump() for name, each in (scored.dialogue if scored else {}).items()}
                    told.append([scored.index, list(scored.scores), dialogue] if scored else None)
                except TurnScoreError as error:
                    told.append([error.code, getattr(error, "field", None)])
                    if error.code == "connection_failed":
                        break
            turns = [{"speaker": each.speaker, "text": each.text} for each in conversation.turns]
            state = {"requests": len(mock.requests), "isDraining": conversation.is_draining}
            return {"told": told, "turns": turns, **state}

    for given, told in javascript["talks"]:
        assert told == talk(given["opening"], given["maxReopenings"], given["steps"]), given


def test_the_mock_answers_as_pythons_does(javascript):
    mock = mock_of_both()
    for path, body, status, reply in javascript["requests"]:
        method, own = ("GET", {}) if body is None else ("POST", {"json": body})
        answer = mock.transport.handle_request(httpx.Request(method, f"http://turnscore.test{path}", **own))
        assert (status, reply) == (answer.status_code, answer.json()), (path, body)


def test_every_public_name_of_python_is_there_and_typed(javascript):
    names = javascript["names"]
    typed = set(re.findall(r"^export (?:interface|class|function|type) (\w+)", TYPES, re.MULTILINE))
    assert {each for each in turnscore_client.__all__ if each not in PYTHON_ONLY and camel(each) not in typed} == set()
    objects = [MockTurnScore(), ManualClock(), turnscore_client.AsyncBackgroundScorer]
    missing = []
    for each in (*objects, turnscore_client.AsyncTurnScoreClient, turnscore_client.AsyncConversation):
        own = camel((each if isinstance(each, type) else type(each)).__name__)
        for name in dir(each):
            if not name.startswith("_") and f"{own}.{name}" not in PYTHON_ONLY:
                is_there = camel(name) in names[own]["members"] and camel(name) in fields_of(own)
                missing += [] if is_there else [f"{own}.{name}"]
    assert missing == []
    for name in turnscore_client.__all__:
        if name.endswith("Error") and isinstance(getattr(getattr(turnscore_client, name), "code", None), ErrorCode):
            assert names[name]["code"] == getattr(turnscore_client, name).code


def test_options_and_fields_are_those_of_python():
    for options in (ClientOptions, CallOptions, TurnOptions):
        own = {each for each in options.__annotations__ if each not in PYTHON_ONLY}
        assert {each for each in own if not {each, camel(each)} & fields_of(options.__name__)} == set(), options
    known = {**vars(turnscore_wire.requests), **vars(turnscore_wire.conversations), **vars(turnscore_wire)}
    typed = re.findall(r"^export interface (\w+)", TYPES, re.MULTILINE)
    wire = [each for each in typed if hasattr(known.get(each), "model_fields") and each != "ChatMessage"]
    wider = {"BatchRequest": fields_of("ScorerChoice")}  # for each of its items
    for each in wire:
        assert fields_of(each) == set(known[each].model_fields) | wider.get(each, set()), each
    assert len(wire) > 25
    [codes] = re.findall(r"^export type ErrorCode =(.*?);", TYPES, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"\w+", codes)) == set(ErrorCode)


@pytest.mark.skipif(TSC is None, reason="there is no TypeScript: make deploy-tools")
def test_the_examples_are_checked_by_the_types_and_a_wrong_one_is_refused(tmp_path):
    assert TSC is not None
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "turnscore").symlink_to(FOLDER)
    example = "\n".join(re.findall(r"```js\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL))
    command = [TSC, "--noEmit", "--strict", *["--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom"]]
    for place, (old, new) in enumerate([("", ""), ("response:", "answer:"), (".label", ".lable")]):
        name = f"example{place}.mts"
        (tmp_path / name).write_text(example.replace(old, new))
        done = subprocess.run([*command, name], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert bool(done.returncode) == bool(place), done.stdout


@pytest.mark.skipif(NODE is None, reason="there is no Node: apt-get install nodejs")
def test_its_own_tests_pass_in_node():
    assert NODE is not None
    told = subprocess.run([NODE, "--version"], capture_output=True, text=True, check=True).stdout
    if (major := int(told[1:].split(".")[0])) < 20:
        pytest.skip(f"Node {major} is older than 20")
    flags = ["--experimental-websocket"] if major < 22 else []  # Node 20 and 21 have a WebSocket behind it
    settings = settings_with(auth={"keys": {"page": {"sha256": hashlib.sha256(KEY.encode()).hexdigest()}}})
    with served_app(settings, fake=FakeScorer()) as (url, _):
        done = subprocess.run(
            [NODE, *flags, "--test", "--test-reporter=tap"], cwd=FOLDER,
            env={**os.environ, "TURNSCORE_URL": url, "TURNSCORE_API_KEY": KEY, "NODE_NO_WARNINGS": "1"},
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout
    counted = dict(re.findall(r"^# (pass|fail|skipped) (\d+)$", done.stdout, re.MULTILINE))
    assert counted["skipped"] == counted["fail"] == "0", done.stdout
    assert int(counted["pass"]) >= 40


def test_the_page_serves_this_very_client():
    own = {f"turnscore/{path.name}": path.read_bytes() for path in (FOLDER / "src").glob("*.js")}
    assert {name: file.content for name, file in read_page().items() if name.startswith("turnscore/")} == own


def test_the_package_has_the_projects_version_and_a_type_for_every_name(javascript):
    package = json.loads((FOLDER / "package.json").read_text())
    assert package["version"] == version("turnscore-client")
    files = [path for each in package["exports"].values() for path in each.values()]
    assert all((FOLDER / path).exists() for path in (*files, *package["files"]))
    typed = re.findall(r"^export (?:class|function) (\w+)", TYPES, re.MULTILINE)
    assert sorted(javascript["names"]) == sorted(typed)
