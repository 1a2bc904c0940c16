"""Everything that calls a service in an endurance run: raw HTTP, both clients, conversations, batch files, corpora."""

import asyncio
import json
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from shutil import rmtree
from typing import Any

from turnscore_client import AsyncTurnScoreClient, AsyncTurnScoreGrpcClient, TurnScoreClient, TurnScoreError
from turnscore_client import TurnScoreGrpcClient as GrpcClient

from turnscore_load.answers import CallAnswer, Outcome
from turnscore_load.fleet import Fleet
from turnscore_load.generator import HttpConnection, post_bytes
from turnscore_load.machine import LOOPBACK
from turnscore_load.oracle import Ask, Asker, FaultLog, Oracle, Place, Verdict, system_places, worst
from turnscore_load.processes import Process, find_program

RAW, PLAIN = "raw, the proxy repeats", "raw, the proxy does not"
METERED, STRANGER = "raw, few turns a second", "raw, revoked key"
FILE, CORPUS = "turnscore score", "turnscore corpus"
RAW_CALLERS = {RAW: 14, PLAIN: 6, METERED: 1, STRANGER: 1}  # and their connections
SCORED = ("engagement", "quality")  # in conversations, files and corpora
_PATIENCE_SECONDS = 60.0  # a request without any answer until then has none
_TIMEOUT_SECONDS = 20.0
_AFTER_FAILURE_SECONDS = 0.1
_PAUSE_SECONDS = 0.3  # of the callers that cost more CPU than the service does
_FILE_LINES, _CORPUS_DIALOGUES = 120, 60
_BETWEEN_SECONDS = {FILE: 15.0, CORPUS: 45.0}
_MOST_RUNS = 60
_SMALL_FILE_BYTES = 16 * 1024  # what a command may write into one file where there is no small disk to fill
_JAVASCRIPT = Path(__file__).parents[2] / "clients" / "javascript" / "src" / "turnscore.js"

Send = Callable[[Ask], Awaitable[Any]]


@dataclass(kw_only=True)
class Keys:
    """The keys of the moment: that of all callers, one of a small rate, and one that was revoked."""

    everyone: str
    metered: str
    revoked: str = "ts_never"


class Callers:
    """Calls until it is cancelled; what is asked goes into the ledger that `ledger` is at that moment."""

    def __init__(self, oracle: Oracle, running: Fleet, keys: Keys, *, programs: Path, disk: Path, seed: str) -> None:
        """`programs` is the folder of the command-line tool, `disk` the one for what it writes."""
        self.oracle, self.running, self.keys, self.ledger = oracle, running, keys, FaultLog("before any")
        self.is_disk_full, self.can_fill_disk = False, True
        self._tool, self.disk, self._seed = programs / "turnscore", disk, seed
        self._ids, self._waiting = count(), dict[int, asyncio.Future[Any]]()
        self._node: Any = None

    async def run(self) -> None:
        """Raises what is the run's own fault."""
        async with asyncio.TaskGroup() as group:
            for work in self._works():
                group.create_task(work)

    def _works(self) -> Iterator[Coroutine[Any, Any, None]]:
        for name, connections in RAW_CALLERS.items():
            for number in range(connections):
                yield self._call_raw(name, number)
        http, grpc = self.running.url, self.running.grpc_target
        options: Any = {"timeout_seconds": _TIMEOUT_SECONDS}
        makes: dict[str, Callable[[str], Any]] = {
            "Python, asyncio, HTTP": lambda key: AsyncTurnScoreClient(http, api_key=key, **options),
            "Python, asyncio, gRPC": lambda key: AsyncTurnScoreGrpcClient(grpc, api_key=key, **options),
            "Python, threads, HTTP": lambda key: TurnScoreClient(http, api_key=key, **options),
            "Python, threads, gRPC": lambda key: GrpcClient(grpc, api_key=key, **options),
        }
        for name, make in makes.items():
            for number in range(2):
                yield self._call(name, number, _PythonClient(make, self.keys, self.oracle))
        yield self._run_node()
        for number in range(2):
            yield self._call("JavaScript", number, self._ask_javascript)
            yield self._converse("conversation, WebSocket", number, makes["Python, asyncio, HTTP"])
        yield self._converse("conversation, gRPC", 0, makes["Python, asyncio, gRPC"])
        yield self._converse_in_javascript("conversation, JavaScript")
        yield self._repeat(FILE, self._score_file)
        yield self._repeat(CORPUS, self._score_corpus)

    def _asker(self, caller: str, number: int = 0) -> Asker:
        return Asker(self.oracle, f"{self._seed} {caller} {number}")

    async def _call_raw(self, caller: str, number: int) -> None:
        """Requests one after the other over a kept connection; none is sent again."""
        asker, loop, connection = self._asker(caller, number), asyncio.get_running_loop(), None
        port = self.running.plain_port if caller == PLAIN else self.running.proxy.port
        while True:
            ledger, ask = self.ledger, asker.draw(self.ledger.fault)
            key = {METERED: self.keys.metered, STRANGER: self.keys.revoked}.get(caller, self.keys.everyone)
            body = json.dumps(self.oracle.body(ask)).encode()
            request = post_bytes(f"/v1/{ask.call}", port, body, f"Authorization: Bearer {key}\r\n")
            ledger.ask(caller)
            began = loop.time()
            try:
                if connection is None or not connection.is_open:
                    connection = (await loop.create_connection(lambda: HttpConnection(_read_status), LOOPBACK, port))[1]
                patience = loop.call_later(_PATIENCE_SECONDS, connection.abort, "no answer")
                answer, got = await connection.call(request)
                patience.cancel()
            except OSError as error:
                answer, got = CallAnswer(outcome="failed", why=f"no connection: {type(error).__name__}"), b""
            if answer.why == "no answer":
                continue  # and it stays unsettled
            verdict = judge_raw(self.oracle, ask, answer, got)
            if caller == STRANGER and verdict.outcome == "answered":
                verdict = Verdict("wrong", "a revoked key is answered")
            ledger.settle(caller, verdict, loop.time() - began)
            if verdict.outcome != "answered" or caller == METERED:
                await asyncio.sleep(_AFTER_FAILURE_SECONDS)

    async def _call(self, caller: str, number: int, send: Send) -> None:
        asker = self._asker(caller, number)
        while True:
            ask = asker.draw(self.ledger.fault)
            await self._settle(caller, lambda: send(ask), lambda reply: self.oracle.judge(ask, reply))  # noqa: B023
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _settle(
        self, caller: str, send: Callable[[], Awaitable[Any]], judge: Callable[[Any], Verdict]
    ) -> Verdict:
        """One request through a client: asked, judged and counted."""
        ledger, loop = self.ledger, asyncio.get_running_loop()
        ledger.ask(caller)
        began = loop.time()
        try:
            verdict = judge(await send())
        except TurnScoreError as error:
            verdict = Verdict("failed", error.code)
        except Exception as error:  # whatever else a client raises is the client's fault
            verdict = Verdict("unclear", f"{type(error).__name__}: {error}")
        ledger.settle(caller, verdict, loop.time() - began)
        return verdict

    async def _converse(self, caller: str, number: int, make: Callable[[str], Any]) -> None:
        """One conversation after the other; one that fails is left."""
        asker = self._asker(caller, number)
        while True:
            dialogue, turns = asker.dialogue()
            async with make(self.keys.everyone) as client:
                conversation, is_open = client.conversation(scorers=list(SCORED)), False

                async def enter() -> None:
                    nonlocal is_open
                    await conversation.__aenter__()  # noqa: B023
                    is_open = True

                await self._settle(caller, enter, lambda _: Verdict("answered"))
                for index, turn in enumerate(turns if is_open else ()):
                    verdict = await self._settle(
                        caller,
                        lambda: conversation.say(turn["speaker"], turn["text"]),  # noqa: B023
                        lambda reply: judge_said(self.oracle, Place(dialogue, index), reply),  # noqa: B023
                    )
                    if verdict.outcome != "answered":
                        break
                    await asyncio.sleep(_PAUSE_SECONDS)
                await conversation.close()
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _run_node(self) -> None:
        """The process of the JavaScript client, which takes orders of all who call through it."""
        folder = self.running.folder
        words = ["--experimental-websocket", "--no-warnings", Path(__file__).with_name("javascript_caller.mjs")]
        node = Process([find_program("node"), *words, _JAVASCRIPT, self.running.url], folder, talks=True)
        node.record = self.running.record
        node.start()
        self._node = node
        try:
            while True:
                answer = await asyncio.to_thread(node.read_answer)
                self._waiting.pop(answer["id"]).set_result(answer)
        finally:
            await asyncio.shield(asyncio.to_thread(node.kill))

    async def _order(self, call: str, body: Any) -> Any:
        """Raises JavaScriptError."""
        while self._node is None:
            await asyncio.sleep(_PAUSE_SECONDS)
        number = next(self._ids)
        answered = self._waiting[number] = asyncio.get_running_loop().create_future()
        order = {"id": number, "key": self.keys.everyone, "call": call, "body": body}
        self._node.process.stdin.write(f"{json.dumps(order)}\n")
        self._node.process.stdin.flush()
        answer = await answered
        if "reply" in answer:
            return answer["reply"]
        if not answer["error"]:
            raise RuntimeError(answer["what"])
        raise JavaScriptError(answer["error"])

    async def _ask_javascript(self, ask: Ask) -> Any:
        call = {"score": "score", "score_batch": "scoreBatch", "score_dialogue": "scoreDialogue"}[ask.call]
        return await self._order(call, self.oracle.body(ask))

    async def _converse_in_javascript(self, caller: str) -> None:
        """A conversation counts as one request."""
        asker = self._asker(caller)
        while True:
            dialogue, turns = asker.dialogue()
            await self._settle(
                caller,
                lambda: self._order("talk", {"turns": turns, "scorers": list(SCORED)}),  # noqa: B023
                lambda reply: judge_talk(self.oracle, dialogue, reply),  # noqa: B023
            )
            await asyncio.sleep(2 * _PAUSE_SECONDS)

    async def _repeat(self, caller: str, work: Callable[[int, random.Random], Awaitable[None]]) -> None:
        chance, loop = random.Random(f"{self._seed} {caller}"), asyncio.get_running_loop()
        for number in count():
            await work(number, chance)
            end = loop.time() + _BETWEEN_SECONDS[caller]
            while loop.time() < end and not self.is_disk_full:  # which a command has to meet
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _score_file(self, number: int, chance: random.Random) -> None:
        """A file of turns and dialogues, by a command that is killed in between and repeated."""
        asks, lines = [], []
        for place in chance.sample(self.oracle.places["system"], _FILE_LINES):
            turns = self.oracle.dialogues[place.dialogue]
            is_dialogue = chance.random() < 0.3
            asks.append(
                Ask("score_dialogue", system_places(place.dialogue, turns), SCORED)
                if is_dialogue
                else Ask("score", [place], SCORED)
            )
            lines.append(json.dumps({"turns": turns} if is_dialogue else self.oracle.item(place)))
        source, output = self.running.folder / "file.jsonl", self.disk / f"file-{number}.jsonl"
        source.write_text("\n".join(lines) + "\n")
        words = [source, "--output", output, "--url", self.running.url, "--scorers", ",".join(SCORED), "--wait", 120,
                 "--timeout", _TIMEOUT_SECONDS]  # fmt: skip
        known: list[bytes] = []

        def look() -> bool:
            """Whether every row that was there before still is."""
            nonlocal known
            before, known = known, whole_lines(output)
            return known[: len(before)] == before

        if await self._run_command(FILE, ["score", *words], chance, look):
            judge_file(self.oracle, asks, whole_lines(output), self.ledger)
        output.unlink(missing_ok=True)

    async def _score_corpus(self, number: int, chance: random.Random) -> None:
        """Dialogues in blocks of eight, with the run's Redis."""
        chosen = chance.sample(range(len(self.oracle.dialogues)), _CORPUS_DIALOGUES)
        source, output = self.running.folder / "corpus.jsonl", self.disk / f"corpus-{number}"
        rows = ({"id": str(each), "turns": self.oracle.dialogues[each]} for each in chosen)
        source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        models = ",".join(f"{each}/" for each in self.running.bundles if each.name in SCORED)
        words = [source, output, "--models", models, "--scorers", ",".join(SCORED), "--workers", 1, "--redis",
                 self.running.redis_url, "--block-dialogues", 8]  # fmt: skip
        known: dict[Path, bytes] = {}

        def look() -> bool:
            """Whether every block that was complete still is, to the byte."""
            nonlocal known
            before = known
            known = {each: each.read_bytes() for each in output.glob("manifests/*.json")}
            known |= {each: each.read_bytes() for each in output.glob("turns/*.parquet")
                      if output / "manifests" / f"{each.stem}.json" in known}  # fmt: skip
            return before.items() <= known.items()

        if await self._run_command(CORPUS, ["corpus", "score", *words], chance, look):
            places = [place for each in chosen for place in system_places(each, self.oracle.dialogues[each])]
            judge_corpus(self.oracle, places, read_turns(output), self.ledger)
        rmtree(output, ignore_errors=True)  # a command that was killed may still write

    async def _run_command(
        self, caller: str, words: Sequence[object], chance: random.Random, look: Callable[[], bool]
    ) -> bool:
        """Runs it until it ends with 0, killed once or twice; whether it did. What stood there once has to stay."""
        kills = chance.randint(0, 2)
        for _ in range(_MOST_RUNS):
            command = [self._tool, *words]
            if self.is_disk_full and not self.can_fill_disk:
                command = [find_program("prlimit"), f"--fsize={_SMALL_FILE_BYTES}", *command]
            given = {"TURNSCORE_API_KEY": self.keys.everyone}
            process = Process(command, self.running.folder / caller.split()[-1], environment=given, clean=True)
            process.record = self.running.record
            process.log.unlink(missing_ok=True)
            process.start()
            end = asyncio.get_running_loop().time() + (chance.uniform(1.5, 6.0) if kills else 300.0)
            try:
                while process.is_running and asyncio.get_running_loop().time() < end:
                    await asyncio.sleep(0.05)
                if process.is_running and not kills:
                    self.ledger.breaks(f"{caller}: does not end")
                self.ledger.count(caller, "killed", int(process.is_running))
                kills -= process.is_running and bool(kills)
            finally:
                process.kill()
            if not look():
                self.ledger.count(caller, "rows lost")
            code, log = process.process.returncode, process.log_end()
            if code not in (0, -signal.SIGKILL):
                self.ledger.count(caller, f"ended with {code}")
            if "Traceback" in log:
                self.ledger.count(caller, "unclear")
                self.ledger.breaks(log)
            if process.process.returncode == 0:
                return True
            await asyncio.sleep(1.0)
        self.ledger.count(caller, "rows lost")
        return False


class JavaScriptError(TurnScoreError):
    """The JavaScript client's error of that code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code  # type: ignore[misc]


class _PythonClient:
    """A client of the key of the moment, whichever kind it is."""

    def __init__(self, make: Callable[[str], Any], keys: Keys, oracle: Oracle) -> None:
        self._make, self._keys, self._oracle = make, keys, oracle
        self._client: Any = None
        self._key = ""

    async def __call__(self, ask: Ask) -> Any:
        if self._key != self._keys.everyone:
            self._key = self._keys.everyone
            await self._close()
            self._client = self._make(self._key)
        call, given = getattr(self._client, ask.call), self._oracle.given(ask)
        reply = await (asyncio.to_thread(call, **given) if self._is_sync() else call(**given))
        return reply.model_dump()

    def _is_sync(self) -> bool:
        return isinstance(self._client, TurnScoreClient | GrpcClient)

    async def _close(self) -> None:
        if self._client is not None:
            await (asyncio.to_thread(self._client.close) if self._is_sync() else self._client.aclose())


def _read_status(status: int, _: str | None, __: bytes, why: str) -> CallAnswer:
    """Of a reply that is judged elsewhere; `why` is its status."""
    outcome: Outcome = "answered" if status == 200 else "refused" if status else "failed"
    return CallAnswer(outcome=outcome, why=why or str(status))


def judge_raw(oracle: Oracle, ask: Ask, answer: CallAnswer, body: bytes) -> Verdict:
    """Of an HTTP reply: scores come with 200, errors do not. An error page of the proxy's is a failed connection."""
    if answer.outcome == "failed":
        return Verdict("failed", answer.why)
    try:
        reply = json.loads(body)
    except ValueError:
        return Verdict("failed", f"status {answer.why} of the proxy")
    verdict, is_error = oracle.judge(ask, reply), isinstance(reply, Mapping) and "error" in reply
    if verdict.outcome in ("answered", "refused") and is_error == (answer.why == "200"):
        return Verdict("unclear", f"status {answer.why} with {verdict.why or 'scores'}")
    return verdict


def judge_said(oracle: Oracle, place: Place, reply: Any) -> Verdict:
    """Of a conversation's turn: its scores, its place, and that every turn before it counts once."""
    if oracle.dialogues[place.dialogue][place.turn]["speaker"] == "user":
        return Verdict("answered") if reply is None else Verdict("unclear", "a user's turn is scored")
    if reply is None:
        return Verdict("lost", f"no scores of {place}")
    fields = reply if isinstance(reply, Mapping) else reply.model_dump()
    verdict = oracle.judge_scores(place, SCORED, fields)
    before = len(system_places(place.dialogue, oracle.dialogues[place.dialogue][: place.turn + 1]))
    counted = {fields["dialogue"].get(scorer, {}).get("turns", 0) for scorer in SCORED}
    if verdict.outcome == "answered" and (fields["index"], counted) != (place.turn, {before}):
        return Verdict("wrong", f"{place} came back as turn {fields['index']}, {counted} of {before} counted")
    return verdict


def judge_talk(oracle: Oracle, dialogue: int, replies: Sequence[Any]) -> Verdict:
    """Of a conversation's replies, one for each turn up to the first with an error, which later ones do not count."""
    verdict = worst(judge_said(oracle, Place(dialogue, index), reply) for index, reply in enumerate(replies))
    if verdict.outcome == "answered" and len(replies) < len(oracle.dialogues[dialogue]):
        return Verdict("lost", f"{len(replies)} replies to dialogue {dialogue}")
    return verdict


def whole_lines(file: Path) -> list[bytes]:
    """What a file holds of complete lines; none where there is no file."""
    with suppress(FileNotFoundError):
        return file.read_bytes().split(b"\n")[:-1]
    return []


def judge_file(oracle: Oracle, asks: Sequence[Ask], lines: Sequence[bytes], ledger: FaultLog) -> None:
    """Every line of the input has one row, with the right values."""
    rows = [json.loads(line) for line in lines]
    times = Counter(row["line"] for row in rows)
    ledger.count(FILE, "missing", sum(not times[number + 1] for number in range(len(asks))))
    ledger.count(FILE, "duplicated", sum(each - 1 for each in times.values()))
    for row in rows:
        ask = asks[row["line"] - 1]
        if ask.call == "score_dialogue" and "error" not in row:
            row = {**row, "turns": [each for each in row["turns"] if "scores" in each]}
        ledger.ask(FILE)
        ledger.settle(FILE, oracle.judge(ask, row))


def read_turns(output: Path) -> list[dict[str, Any]]:
    """The rows of a corpus's turns."""
    from pyarrow import parquet

    return [row for file in sorted(output.glob("turns/*.parquet")) for row in parquet.read_table(file).to_pylist()]


def judge_corpus(oracle: Oracle, places: Sequence[Place], rows: Sequence[Mapping[str, Any]], ledger: FaultLog) -> None:
    """Every turn has one row, with the right values."""
    times = Counter(Place(int(row["dialogue"]), row["index"]) for row in rows)
    ledger.count(CORPUS, "missing", sum(not times[place] for place in places))
    ledger.count(CORPUS, "duplicated", sum(each - 1 for each in times.values()))
    for row in rows:
        place = Place(int(row["dialogue"]), row["index"])
        wrong = [
            oracle.find_wrong_value(place, row[f"{each}_model"], row[f"{each}_value"], row[f"{each}_percentile"])
            for each in SCORED
        ]
        ledger.ask(CORPUS)
        ledger.settle(CORPUS, Verdict("wrong", max(wrong)) if any(wrong) else Verdict("answered"))
