"""Kills, stops, slows and restarts every part of a deployment in turn, and compares each answer its callers get.

Three replicas, haproxy, two Redis servers and their Sentinel. In pieces: what was found after each fault is a line of
`pieces.jsonl` in `--state`, and the same command goes on after the last line.
"""

import asyncio
import fcntl
import json
import os
import random
import re
import shutil
import signal
import socket
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
import uvloop
from pydantic import TypeAdapter
from turnscore_wire import Turn
from typer import Option

from turnscore_load.callers import CORPUS, METERED, PLAIN, RAW, RAW_CALLERS, STRANGER, Callers, Keys
from turnscore_load.fleet import STARTER, Fleet, copy_as, damage, falsify, fleet, graph_of, sign
from turnscore_load.machine import ScenarioError
from turnscore_load.oracle import BROKEN, FaultLog, Oracle, Place, Turns, percentile_ms
from turnscore_load.processes import Process, StartError, end_recorded, run_quietly
from turnscore_load.results import Check, table
from turnscore_load.scenario import Scenario
from turnscore_load.traffic import Traffic, TrafficSettings

_DIALOGUES, _FED_DIALOGUES, _MOST_TURNS = 500, 40, 6
_SETTLED_SECONDS = 2.0  # of load before a fault and after it; chosen
_OUT_SECONDS = 5.0  # how long a part stands still, or is slow; longer than Sentinel waits; chosen
_SLICE_SECONDS = 0.1
_ANSWER_SECONDS = 600.0
_KEY_SECONDS = 5.0  # until every replica knows a changed file of keys: a second, on a machine without CPU to spare
_SCALE = 0.9  # of the second version of engagement: its values differ from the first's
_COMMANDS = Path(sys.executable).parent  # of the development environment, which has corpora, too
PARTS = ("a replica", "the Redis master", "the Redis replica", "Sentinel", "the proxy")
ACTIONS = ("killed", "stopped", "slow", "restarted")
_PROXY = "the proxy: "
# Of requests that nobody repeats, in a fault of a process that answers them: those that it was answering.
_ANSWERING = ("a replica: ", "every replica ", _PROXY)
_MOST_FAILED = {RAW: 2 * RAW_CALLERS[RAW], PLAIN: 2 * RAW_CALLERS[PLAIN], METERED: 2, STRANGER: 2}
# What raw callers may be refused with at any time. Our clients repeat it, and may not be refused.
_REFUSALS = {
    **dict.fromkeys(RAW_CALLERS, ("overloaded", "not_ready", "deadline_exceeded")),
    STRANGER: ("unauthenticated",),
}

Line = dict[str, Any]  # of pieces.jsonl


@dataclass(kw_only=True)
class Endurance(Scenario[list[Line]]):
    """Check that no answer is wrong or lost and no row is missing, whatever fails. Repeated, it goes on."""

    hours: Annotated[
        float, Option(min=0.0, max=72, help="How long this run may take; 0: it reports what is known.")
    ] = 8.0
    requests: Annotated[int, Option(min=1, help="Requests of all runs after which it ends.")] = 1_000_000
    state: Annotated[Path, Option(help="Folder of what was found; another one begins anew.")] = Path("build/endurance")
    seed: Annotated[int, Option(help="Of the requests and the order of the faults.")] = 1
    faults: Annotated[str, Option(help="Only faults whose names hold this.")] = ""

    keeps_figures = False

    def measure(self) -> list[Line]:
        self.state = self.state.absolute()
        self.state.mkdir(parents=True, exist_ok=True)
        if self.hours:
            with locked(self.state / "lock"):
                try:
                    uvloop.run(self._measure())
                except asyncio.CancelledError:
                    raise ScenarioError("stopped; repeat the command to go on") from None
        return read_lines(self.state / "pieces.jsonl")

    async def _measure(self) -> None:
        loop, own = asyncio.get_running_loop(), asyncio.current_task()
        assert own is not None
        for number in (signal.SIGINT, signal.SIGTERM):  # what a handler raises is lost in a callback of the loop's
            loop.add_signal_handler(number, own.cancel)
        record, file = self.state / "processes", self.state / "pieces.jsonl"
        end_recorded(record)
        copies = self.state / "bundles"
        other = scale(copy_as("90.0.1", copies / "engagement"))
        next_quality = copy_as("90.0.1", copies / "quality", STARTER / "quality")
        broken = [damage(copy_as("90.1.0", copies / "damaged")), falsify(copy_as("90.1.1", copies / "falsified"))]
        bundles = [STARTER / name for name in ("quality", "engagement", "sentiment_stop", "reaction", "fed")]
        oracle = self._oracle(bundles, other, next_quality)
        keys_file = self.state / "keys.toml"
        keys_file.unlink(missing_ok=True)
        make = [_COMMANDS / "turnscore", "keys", "new", "--file", keys_file]
        everyone = run_quietly([*make, "everyone"]).strip()
        keys = Keys(everyone=everyone, metered=run_quietly([*make, "metered", "--turns-per-second", "2"]).strip())
        # Takes away what a run that was killed had begun to write.
        if file.exists():
            os.truncate(file, file.read_bytes().rfind(b"\n") + 1)
        lines = read_lines(file)
        with ExitStack() as stack:
            stack.callback(record.unlink, missing_ok=True)
            stack.callback(shutil.rmtree, copies)
            disk, can_fill = stack.enter_context(small_disk(self.state / "disk"))
            running = stack.enter_context(fleet(self.serving, self.state / "parts", bundles, keys_file, record))
            seed = f"{self.seed} {len(lines)}"
            callers = Callers(oracle, running, keys, programs=_COMMANDS, disk=disk, seed=seed)
            callers.can_fill_disk = can_fill
            versions = {"engagement": [STARTER / "engagement", other], "quality": [STARTER / "quality", next_quality]}
            await self._run_faults(Faults(running, callers, keys_file, versions, broken), callers, lines, file)

    async def _run_faults(self, maker: "Faults", callers: Callers, lines: list[Line], file: Path) -> None:
        end, order = time.monotonic() + 3600 * self.hours, self._order(maker, len(lines))
        fault, chance = next(order)
        callers.ledger = FaultLog(fault)
        calling, finishing = asyncio.create_task(callers.run()), list[asyncio.Task[None]]()
        try:
            while time.monotonic() < end and count_requests(lines) + callers.ledger.asked < self.requests:
                began, ledger = time.monotonic(), callers.ledger
                await asyncio.sleep(_SETTLED_SECONDS)
                for problem in await maker.make(fault, chance):
                    ledger.breaks(problem)
                await asyncio.to_thread(maker.running.wait_until_whole)
                await asyncio.sleep(_SETTLED_SECONDS)
                fault, chance = next(order)
                callers.ledger = FaultLog(fault)
                line = {"seconds": round(time.monotonic() - began, 1)}
                finishing.append(asyncio.create_task(_finish(ledger, line, lines, file)))
                if calling.done():
                    calling.result()
            await asyncio.gather(*finishing)
        finally:
            # What is still in flight was cancelled, not lost: such a fault has no line, and is made again.
            for each in (calling, *finishing):
                each.cancel()
            await asyncio.gather(calling, *finishing, return_exceptions=True)

    def _order(self, maker: "Faults", begin: int) -> Iterator[tuple[str, random.Random]]:
        """Piece after piece, each with every fault in an order of its own; from that place on."""
        names = [each for each in maker.names() if self.faults in each]
        if not names:
            raise ScenarioError(f"no fault is named {self.faults}: {', '.join(maker.names())}")
        place = begin
        while True:
            piece = list(names)
            random.Random(f"{self.seed} {place // len(names)}").shuffle(piece)
            yield piece[place % len(names)], random.Random(f"{self.seed} {place}")
            place += 1

    def _oracle(self, bundles: Sequence[Path], *others: Path) -> Oracle:
        """Computed: each dialogue alone in its call."""
        # Each of at least two turns, the last of them the system's.
        found: dict[str, Turns] = {}
        traffic = Traffic(TrafficSettings(seed=self.seed), "endurance")
        while len(found) < _DIALOGUES:
            item = traffic.next_ask().item
            context = item["context"]
            if len(context) < _MOST_TURNS:
                turns = [*context, {"speaker": "system", "text": item["response"]}]
                found[context[0]["text"]] = turns  # the longest one that begins like this
        dialogues = list(found.values())
        known: dict[str, dict[Place, Any]] = defaultdict(dict)
        fed = [each for each in bundles if each.name == "fed"]
        compute([each for each in bundles if each not in fed], dialogues, known)
        compute(fed, dialogues[:_FED_DIALOGUES], known)
        for each in others:
            compute([each], dialogues, known)
        return Oracle(dialogues, known)

    def report(self, found: list[Line]) -> Iterator[str]:
        yield from describe(found)

    def checks(self, found: list[Line]) -> list[Check]:
        return check_lines(found)


class Faults:
    """Makes one fault after the other, and what it finds wrong with the parts themselves."""

    def __init__(
        self, running: Fleet, callers: Callers, keys_file: Path, versions: dict[str, list[Path]], broken: Sequence[Path]
    ) -> None:
        self.running, self._callers, self._keys_file = running, callers, keys_file
        self._versions, self._broken = versions, broken
        self._others: dict[str, Callable[[random.Random], Awaitable[list[str]]]] = {
            "none": self._nothing, "every replica restarted in turn": self._restart_all,
            "models switched": self._switch, "switches refused": self._refuse, "keys rotated": self._rotate,
            "the disk full": self._fill,
        }  # fmt: skip

    def names(self) -> list[str]:
        return [*self._others, *(f"{part}: {action}" for part in PARTS for action in ACTIONS)]

    async def make(self, name: str, chance: random.Random) -> list[str]:
        """Returns when it is over, though not all parts may be whole again."""
        if name in self._others:
            return await self._others[name](chance)
        part, _, action = name.partition(": ")
        process = await asyncio.to_thread(self._choose, part, chance)
        if action in ("killed", "restarted"):
            process.signal(signal.SIGKILL if action == "killed" else signal.SIGTERM)
            # Sentinel is to notice that a master is away, and callers of a proxy repeat for three seconds.
            is_away = action == "killed" and process is not self.running.proxy
            await start_again(process, _OUT_SECONDS if is_away else 0.0)
        else:
            await {"stopped": stop, "slow": slow}[action](process)
        return []

    def _choose(self, part: str, chance: random.Random) -> Process:
        if part == "a replica":
            return chance.choice(self.running.replicas)
        if part in ("Sentinel", "the proxy"):
            return self.running.sentinel if part == "Sentinel" else self.running.proxy
        return self.running.master_first()[part == "the Redis replica"]

    async def _nothing(self, _: random.Random) -> list[str]:
        await asyncio.sleep(_OUT_SECONDS)
        return []

    async def _restart_all(self, _: random.Random) -> list[str]:
        for each in self.running.replicas:
            each.signal(signal.SIGTERM)
            await start_again(each)
            await asyncio.sleep(1.5)  # two checks of haproxy's, 500 ms apart, and one between
        return []

    async def _switch(self, chance: random.Random) -> list[str]:
        problems = []
        for replica in self.running.replicas:
            for scorer, versions in [chance.choice(list(self._versions.items()))]:
                served = (await self._order(replica, {"action": "serving"}))["models"][scorer]
                reply = await self._order(replica, _serve(versions["90.0.1" not in served]))
                if reply["outcome"] != "switched":
                    problems.append(f"a switch of {scorer} was not made: {reply}")
        return problems

    async def _refuse(self, _: random.Random) -> list[str]:
        problems = []
        for replica in self.running.replicas:
            for bundle in self._broken:
                reply = await self._order(replica, _serve(bundle))
                if reply["outcome"] != "refused" or "90.1" in str(reply["models"]):
                    problems.append(f"a broken version was not refused: {reply}")
        return problems

    async def _order(self, replica: Process, order: dict[str, str]) -> dict[str, Any]:
        return await asyncio.to_thread(give_order, Path(replica.environment["TURNSCORE_ADMIN__FOLDER"]), order)

    async def _rotate(self, _: random.Random) -> list[str]:
        """The key before is revoked, the present one gets a second beside it, which all callers use from then on."""
        keys, problems = self._callers.keys, []
        tool, file = [_COMMANDS / "turnscore", "keys"], ["--file", self._keys_file]
        told = await asyncio.to_thread(run_quietly, [*tool, "list", *file])
        before = told.partition("(before: ")[2].partition(")")[0]
        if before:
            await asyncio.to_thread(run_quietly, [*tool, "revoke", before, *file])
        made = (await asyncio.to_thread(run_quietly, [*tool, "rotate", "everyone", *file])).strip().splitlines()[-1]
        for replica in self.running.replicas:
            for key, status in ((made, 200), (keys.everyone, 200), *(((self._earlier, 401),) if before else ())):
                if not await asyncio.to_thread(_becomes, replica, key, status):
                    problems.append(f"a key's answer did not become {status} within {_KEY_SECONDS} s")
        if before:
            keys.revoked = self._earlier
        self._earlier, keys.everyone = keys.everyone, made
        return problems

    _earlier = ""

    async def _fill(self, _: random.Random) -> list[str]:
        self._callers.is_disk_full = True
        filler = self._callers.disk / "filler"
        try:
            if self._callers.can_fill_disk:
                with suppress(OSError), filler.open("wb", buffering=0) as file:
                    while file.write(bytes(4096)):
                        pass
            await asyncio.sleep(20.0)  # how long the disk is full: commands start in between, and fail
        finally:
            filler.unlink(missing_ok=True)
            self._callers.is_disk_full = False
        return []


async def start_again(process: Process, away_seconds: float = 0.0) -> None:
    """Returns when it is ready again, which had ended, or is about to."""
    await asyncio.to_thread(process.wait)
    await asyncio.sleep(away_seconds)
    await asyncio.to_thread(process.start)


async def stop(process: Process) -> None:
    """It keeps its connections, and answers nothing."""
    process.pause()
    try:
        await asyncio.sleep(_OUT_SECONDS)
    finally:
        process.resume()


async def slow(process: Process) -> None:
    """It stands still for nine tenths of each second's slices."""
    end = time.monotonic() + _OUT_SECONDS
    try:
        while time.monotonic() < end:
            process.pause()
            await asyncio.sleep(0.9 * _SLICE_SECONDS)
            process.resume()
            await asyncio.sleep(0.1 * _SLICE_SECONDS)
    finally:
        process.resume()


def give_order(admin: Path, order: dict[str, str]) -> dict[str, Any]:
    """As the command-line tool gives it, without the tool's own start, which takes the service's CPUs."""
    [path] = admin.glob("*.sock")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        connection.connect(str(path))
        connection.sendall(json.dumps(order).encode() + b"\n")
        with connection.makefile("rb") as reply:
            return dict(json.loads(reply.readline()))


def _serve(bundle: Path) -> dict[str, str]:
    return {"action": "serve", "reference": f"{bundle}"}


def _becomes(replica: Process, key: str, status: int) -> bool:
    """Whether the replica soon answers a question for its models, with that key, by that status."""
    end, headers = time.monotonic() + _KEY_SECONDS, {"authorization": f"Bearer {key}"}
    while time.monotonic() < end:
        with suppress(httpx.TransportError):
            if httpx.get(f"{replica.url}/v1/models", headers=headers, timeout=_KEY_SECONDS).status_code == status:
                return True
        time.sleep(0.1)  # polling another process: there is nothing to wait on
    return False


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Raises ScenarioError where another run has it."""
    with file.open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ScenarioError(f"another run uses {file.parent}") from None
        yield


@contextmanager
def small_disk(folder: Path) -> Iterator[tuple[Path, bool]]:
    """A folder for what commands write, and whether it is a small disk of its own, which only root can make."""
    if os.path.ismount(folder):  # of a run that was killed
        run_quietly(["umount", "--lazy", folder])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        run_quietly(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder])
        is_small = True
    except (StartError, OSError):
        is_small = False
    try:
        yield folder, is_small
    finally:
        if is_small:
            run_quietly(["umount", "--lazy", folder])
        shutil.rmtree(folder, ignore_errors=True)


def compute(models: Sequence[Path], dialogues: Sequence[Turns], known: dict[str, dict[Place, Any]]) -> None:
    """Puts the values and percentiles of every turn into `known`, by `name:version`."""
    from turnscore_core.dialogues import Dialogue
    from turnscore_core.engine import Engine

    with Engine({each.name: each for each in models}) as engine:
        for number, turns in enumerate(dialogues):
            [result] = engine.score([Dialogue(str(number), TypeAdapter(list[Turn]).validate_python(turns))])
            for turn in result.turns:
                for score in turn.scores.values():
                    known[score.model][Place(number, turn.index)] = (score.value, score.percentile)


def scale(folder: Path) -> Path:
    """Multiplies what an engagement bundle computes by a constant, in its graph and in its self-test."""
    import onnx
    from onnx import helper

    graph, test_file = graph_of(folder), folder / "self_test.json"
    model = onnx.load(graph)
    [output] = model.graph.output
    for node in model.graph.node:
        node.output[:] = ["whole" if each == output.name else each for each in node.output]
    model.graph.initializer.append(helper.make_tensor("share", onnx.TensorProto.FLOAT, [], [_SCALE]))
    model.graph.node.append(helper.make_node("Mul", ["whole", "share"], [output.name]))
    onnx.save(model, graph)
    test = json.loads(test_file.read_text())
    for turn in test["turns"]:
        for each in [turn, *turn.get("graphs", {}).values()]:
            each["value"] *= _SCALE
    test_file.write_text(json.dumps(test))
    sign(folder, graph)
    sign(folder, test_file)
    return folder


async def _finish(ledger: FaultLog, line: Line, lines: list[Line], file: Path) -> None:
    """Waits for the answers to what was asked, and appends what became of it."""
    end = time.monotonic() + 70.0  # after a fault, for what was asked during it: more than any caller's patience
    while ledger.in_flight and time.monotonic() < end:
        await asyncio.sleep(0.1)
    ledger.close()
    line = {**line, **ledger.as_json()}
    line["broken"] = [*line["broken"], *find_failures(line)]
    lines.append(line)
    with file.open("a") as written:
        written.write(f"{json.dumps(line)}\n")
    told = ", ".join(f"{each:,} {what}" for what, each in sum_counts([line]).items() if what in ("asked", *BROKEN))
    typer.echo("\n  ".join([f"{line['fault']}: {told} in {line['seconds']:.0f} s", *line["broken"]]))


def find_failures(line: Line) -> list[str]:
    """What callers may not see of a fault: a failure reaches only those who repeat nothing."""
    fault, found = line["fault"], []
    is_answering = fault.startswith(_ANSWERING)
    for caller, counts in line["counts"].items():
        refusals = {f"refused: {code}" for code in _REFUSALS.get(caller, ())}
        failed = sum(number for name, number in counts.items() if name.startswith("refused: ") and name not in refusals)
        failed += 0 if fault.startswith(_PROXY) and caller in RAW_CALLERS else counts.get("failed", 0)
        if failed > (_MOST_FAILED.get(caller, 0) if is_answering else 0):
            found.append(f"{caller}: {failed} failed of {counts['asked']}")
    return found


def read_lines(file: Path) -> list[Line]:
    """Those that are whole: the last one may still be written, or have been cut off by a kill."""
    written = file.read_text() if file.exists() else ""
    return [json.loads(each) for each in written.split("\n")[:-1]]


def sum_counts(lines: Sequence[Line], *callers: str) -> Counter[str]:
    """Over those callers; over all that ask a service where none is named."""
    total: Counter[str] = Counter()
    for line in lines:
        for caller, counts in line["counts"].items():
            if caller in callers or (not callers and caller != CORPUS):
                total.update(counts)
    return total


def count_requests(lines: Sequence[Line]) -> int:
    return sum_counts(lines)["asked"]


def check_lines(lines: Sequence[Line]) -> list[Check]:
    """A claim that does not hold names the faults in which it was broken."""
    checks = []
    claims = {
        "no value is wrong": ("wrong",), "no acknowledged answer is lost": ("lost", "unanswered", "rows lost"),
        "no row is missing or double": ("missing", "duplicated"), "every error is a clear one": ("unclear",),
    }  # fmt: skip
    for claim, names in claims.items():
        counts: Counter[str] = Counter()
        for line in lines:
            counts[line["fault"]] += sum(own.get(name, 0) for own in line["counts"].values() for name in names)
        broken = [f"{number} in {fault}" for fault, number in counts.items() if number]
        checks.append(Check(claim, ", ".join(broken) or f"0 of {count_requests(lines):,}", not broken))
    told = sorted({f"{each['fault']}: {sentence}" for each in lines for sentence in each["broken"]})
    found = "; ".join(told)[:2000] or f"{len(lines)} faults"
    return [*checks, Check("every fault is survived as promised", found, not told)]


def describe(lines: Sequence[Line]) -> Iterator[str]:
    total, seconds = sum_counts(lines), sum(each["seconds"] for each in lines)
    yield (
        f"{total['asked']:,} requests in {seconds / 3600:.1f} hours and {len(lines)} faults; {total['answered']:,} "
        f"were answered, {total['computed']:,} of them with a score that was computed for it."
    )
    head = ["", "times", "asked", "answered", "refused", "failed: raw", "ours", *BROKEN, "p50, ms", "p99, ms"]
    yield table(head, (_row(lines, fault) for fault in sorted({each["fault"] for each in lines})), texts=1)
    rows = []
    for caller in sorted({caller for each in lines for caller in each["counts"]}):
        counts = sum_counts(lines, caller)
        why = ", ".join(
            f"{each:,} {name}" for name, each in sorted(counts.items()) if re.search(": |ended|killed", name)
        )
        rows.append([caller, *(f"{counts[each]:,}" for each in ("asked", "answered", "computed")), why])
    yield table(["", "asked", "answered", "computed", "otherwise"], rows)


def _row(lines: Sequence[Line], fault: str) -> list[str]:
    own = [each for each in lines if each["fault"] == fault]
    counts, raw, rows = sum_counts(own), sum_counts(own, *RAW_CALLERS), sum_counts(own, CORPUS)
    took: Counter[str] = Counter()
    for each in own:
        took.update(each["took"].get(RAW, {}))
    figures = [len(own), counts["asked"], counts["answered"], counts["refused"], raw["failed"]]
    figures += [counts["failed"] - raw["failed"], *(counts[each] + rows[each] for each in BROKEN)]
    return [fault, *(f"{each:,}" for each in figures), *(f"{percentile_ms(took, each):.0f}" for each in (50, 99))]
