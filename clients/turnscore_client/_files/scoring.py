"""Scores lines at the service's pace, waits for a service that is full or gone, and sums up."""

import asyncio
import heapq
import math
import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar
from xml.sax.saxutils import quoteattr

import typer
from rich.console import Console
from rich.table import Table
from turnscore_wire import DialogueReply, ErrorCode, Limits, ModelsReply, ScoreReply

from turnscore_client import _defaults
from turnscore_client._async import AsyncCalls
from turnscore_client._errors import DeadlineExceededError, ServiceError, TurnScoreError, UnauthenticatedError
from turnscore_client._files import rows
from turnscore_client._files.rows import Line, Row
from turnscore_client._files.runs import StoppedError
from turnscore_client._options import Clock
from turnscore_client._retry import is_retryable


class Pace:
    """Belongs to one event loop."""

    def __init__(self, most: int, clock: Clock) -> None:
        self.most = most  # lines in flight at the fastest pace
        self._clock = clock
        self._limit = float(min(most, _defaults.CONCURRENCY))
        self._doubles = True
        self._in_flight = 0
        self._rounds = 0
        self._failures = 0
        self._opens_at = clock.now()
        self._changed = asyncio.Event()
        self._stopped_by: Exception | None = None

    @property
    def limit(self) -> int:
        return int(self._limit)

    async def begin(self) -> int:
        """Returns when a line may be sent; the number of the round it is sent in. Raises what `stop` was given."""
        while True:
            if self._stopped_by is not None:
                raise self._stopped_by
            wait = self._opens_at - self._clock.now()
            if wait > 0:
                await self._clock.sleep_async(wait)
            elif self._in_flight < self.limit:
                self._in_flight += 1
                return self._rounds
            else:
                self._changed.clear()
                await self._changed.wait()

    def end(self) -> None:
        self._in_flight -= 1
        self._changed.set()

    def stop(self, error: Exception) -> None:
        self._stopped_by = error
        self._changed.set()

    def answered(self) -> None:
        self._failures = 0
        step = 1.0 if self._doubles else 1.0 / self._limit
        self._limit = min(float(self.most), self._limit + step)

    def refused(self, begun_in: int, after_ms: int | None, *, is_gone: bool) -> float:
        """The service refused a line, or did not answer: the seconds in which this line is not to be sent again.

        What was sent before the last refusal counts with it. The other lines go on, fewer of them, unless all that was
        sent since an answer was refused.
        """
        if begun_in == self._rounds:
            self._rounds += 1
            self._failures += 1
            self._doubles = False
            self._limit = 1.0 if is_gone else max(1.0, self._limit / 2)
        doublings = min(max(0, self._failures - 1), 30)  # more would only overflow
        delay = min(_defaults.FIRST_DELAY_SECONDS * 2.0**doublings, _defaults.LONGEST_PAUSE_SECONDS)
        seconds = delay if after_ms is None else after_ms / 1000
        if is_gone or self._failures > 1:
            self._opens_at = max(self._opens_at, self._clock.now() + seconds)
        return seconds


_Z = 1.96  # of a 95 % interval, by the normal distribution
_LEAST_DIALOGUES = 6
_WORST = 5


@dataclass(slots=True)
class ClusteredMean:
    """A mean over turns whose interval counts dialogues: turns of one dialogue are alike.

    The ratio estimator with its linearized variance (Cochran, Sampling Techniques, 1977, 6.3).
    """

    clusters: int = 0
    count: int = 0
    total: float = 0.0
    _squares: float = 0.0
    _products: float = 0.0
    _counts: float = 0.0

    def add(self, values: list[float]) -> None:
        if values:
            total, count = sum(values), len(values)
            self.clusters += 1
            self.count += count
            self.total += total
            self._squares += total * total
            self._products += total * count
            self._counts += count * count

    @property
    def mean(self) -> float:
        return self.total / self.count

    def interval(self) -> tuple[float, float] | None:
        """Of 95 %, by Student's t; None below six dialogues, over which it would hold too seldom."""
        if self.clusters < _LEAST_DIALOGUES:
            return None
        spread = self._squares - 2 * self.mean * self._products + self.mean**2 * self._counts
        error = math.sqrt(max(0.0, spread) * self.clusters / (self.clusters - 1)) / self.count
        return self.mean - self._t * error, self.mean + self._t * error

    @property
    def _t(self) -> float:
        """Student's quantile by its expansion in the normal one, right to 1 % from five degrees of freedom on."""
        freedom = self.clusters - 1
        return _Z + (_Z**3 + _Z) / (4 * freedom) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)

    def interval_within(self, most: float) -> tuple[float, float] | None:
        """Of a mean of numbers from 0 to `most`, by Wilson's formula, so that it stays between them.

        It counts as many turns as would have this variance; one a dialogue where all are equal.
        """
        if (plain := self.interval()) is None:
            return None
        share, error = self.mean / most, (plain[1] - plain[0]) / (2 * self._t * most)
        turns = min(self.count, share * (1 - share) / error**2) if error > 0 else self.clusters
        centre, weight = share + _Z**2 / (2 * turns), 1 + _Z**2 / turns
        half = _Z * math.sqrt(share * (1 - share) / turns + (_Z / (2 * turns)) ** 2)
        return most * max(0.0, centre - half) / weight, most * min(weight, centre + half) / weight


@dataclass(frozen=True, kw_only=True)
class Demands:
    """What a run has to reach: a least mean value by scorer, and whether no turn may be `low`."""

    least: Mapping[str, float] = field(default_factory=dict)
    no_low: bool = False


@dataclass
class _Scorer:
    value: ClusteredMean = field(default_factory=ClusteredMean)
    percentile: ClusteredMean = field(default_factory=ClusteredMean)
    low: ClusteredMean = field(default_factory=ClusteredMean)
    models: set[str] = field(default_factory=set)


_COLUMNS = ("turns", "mean", "percentile", "low", "models")


@dataclass
class Summary:
    """Counts rows as they come, in memory that does not grow with them."""

    rows: int = 0
    failed: int = 0
    in_part: int = 0
    to_ask_again: int = 0
    blank: int = 0
    first_failure: str = ""
    scorers: dict[str, _Scorer] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)  # those that the command asked, not a line
    _worst: list[tuple[float, int, str]] = field(default_factory=list)

    def add(self, row: Mapping[str, Any]) -> None:
        self.rows += 1
        failures = rows.failures_in(row)
        if failures:
            self.first_failure = self.first_failure or f"line {row['line']}: {failures[0]}"
            self.failed += "error" in row
            self.in_part += "error" not in row
            self.to_ask_again += rows.is_worth_asking_again(row)
        self.blank += sum(
            isinstance(turn, dict) and rows.is_blank(turn.get("error") or {}) for turn in rows.turns_in(row)
        )
        found: dict[str, list[Mapping[str, Any]]] = {}
        for scores in _scores_in(row):
            for name, score in scores.items():
                found.setdefault(name, []).append(score)
        for name, scores_of_one in found.items():
            self._add_scores(self.scorers.setdefault(name, _Scorer()), scores_of_one)
        if not row.get("scorers"):
            self.asked.update(found, *_errors_of_scorers(row))
        self._note_worst(row, found)

    def exit_code(self) -> int:
        """0 where everything was scored, else 1."""
        return 1 if self.failed or self.in_part else 0

    def shortfalls(self, demands: Demands) -> list[str]:
        """What was demanded and not reached, one sentence each; what was not scored is not reached."""
        told = []
        for name, least in demands.least.items():
            values = self.scorers[name].value if name in self.scorers else ClusteredMean()
            if not values.count:
                told.append(f"{name}: no turn has its score; there are scores of {', '.join(self.scorers) or 'none'}")
            elif values.mean < least:
                told.append(f"{name}: the mean value is {values.mean:.3f}, and at least {least:g} is demanded")
        lows = {name: int(each.low.total) for name, each in self.scorers.items() if each.low.total}
        told += [f"{name}: {count} turns are low" for name, count in lows.items() if demands.no_low]
        if demands.no_low and not any(each.low.count for each in self.scorers.values()):
            told.append("no turn has a label, so that it is not known whether one is low")
        return told

    def show(self, seconds: float, console: Console) -> None:
        """Prints a table and some lines for a person; lines alone where no terminal shows them."""
        lines = [f"scored {self.rows - self.failed} of {self.rows} lines in {seconds:.1f} s{self._failures()}"]
        if console.is_terminal and self.scorers:
            table = Table("scorer", *_COLUMNS)
            for name, scorer in self.scorers.items():
                found = dict(self._figures(scorer))
                table.add_row(name, *(found.get(column, "") for column in _COLUMNS))
            console.print(table, markup=False)
        else:
            lines += [self._describe(name, scorer) for name, scorer in self.scorers.items()]
        if self.blank:
            lines.append(f"{self.blank} turns in which the system said nothing are not scored")
        if worst := sorted(self._worst, reverse=True):
            named = ", ".join(f"line {-number}{name} ({-mean:.0f})" for mean, number, name in worst)
            lines.append(f"lowest mean percentiles: {named}")
        console.print("\n".join(lines), soft_wrap=True, markup=False, highlight=False)

    def _failures(self) -> str:
        counts = [f"{count} {what}" for count, what in ((self.failed, "failed"), (self.in_part, "in part")) if count]
        return f"; {', '.join(counts)}, the first: {self.first_failure}" if counts else ""

    def _describe(self, name: str, scorer: _Scorer) -> str:
        (_, turns), *figures = self._figures(scorer)
        return ", ".join([f"{name}: {turns} turns", *(f"{column} {figure}" for column, figure in figures)])

    def _figures(self, scorer: _Scorer) -> Iterator[tuple[str, str]]:
        """What there is to say, by its column."""
        yield "turns", str(scorer.value.count)
        yield "mean", _with_interval(scorer.value, 3)
        if scorer.percentile.count:
            yield "percentile", _with_interval(scorer.percentile, 1, most=100)
        if scorer.low.count:
            yield "low", f"{_with_interval(scorer.low, 1, 100, most=1)} %"
        if len(scorer.models) > 1:
            yield "models", ", ".join(sorted(scorer.models))

    def _add_scores(self, scorer: _Scorer, scores: list[Mapping[str, Any]]) -> None:
        scorer.value.add([score["value"] for score in scores])
        scorer.percentile.add([score["percentile"] for score in scores if score.get("percentile") is not None])
        scorer.low.add([float(score["label"] == "low") for score in scores if score.get("label")])
        scorer.models.update(str(score.get("model")) for score in scores)

    def _note_worst(self, row: Mapping[str, Any], found: Mapping[str, list[Mapping[str, Any]]]) -> None:
        """By the mean percentile of quality where it was asked, else of all scorers."""
        asked = [found["quality"]] if "quality" in found else list(found.values())
        known = [score["percentile"] for scores in asked for score in scores if score.get("percentile") is not None]
        if known:
            name = f" {row['id']}" if isinstance(row.get("id"), int | str) else ""
            entry = (-fmean(known), -int(row["line"]), name[:60])
            if len(self._worst) < _WORST:
                heapq.heappush(self._worst, entry)
            else:
                heapq.heappushpop(self._worst, entry)


def _scores_in(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "error" in row:
        return
    if isinstance(scores := row.get("scores"), dict):
        yield scores
        return
    for turn in rows.turns_in(row):
        if isinstance(turn, dict) and isinstance(scores := turn.get("scores"), dict):
            yield scores


def _errors_of_scorers(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """By scorer, of a turn's row or of each turn of a dialogue's."""
    yield row.get("errors") or {}
    yield from (turn.get("errors") or {} for turn in rows.turns_in(row) if isinstance(turn, dict))


def write_junit(
    path: Path, suite: str, written: Iterable[Mapping[str, Any]], demands: Demands, shortfalls: Sequence[str]
) -> None:
    """The rows as test cases, in the XML that CI systems read; what the whole run did not reach is the last one.

    A line that failed is an error; one with low turns fails, where none may be.
    """

    def case(name: str, found: Iterable[tuple[str, str]]) -> str:
        told = "".join(f"<{kind} message={_quote(message)}/>" for kind, message in found)
        return f"<testcase classname={_quote(suite)} name={_quote(name)}>{told}</testcase>\n"

    with path.open("w", encoding="utf-8") as file:
        file.write(f'<?xml version="1.0" encoding="utf-8"?>\n<testsuite name={_quote(suite)}>\n')
        for row in written:
            name = f"line {row['line']}" + (f", {row['id']}" if isinstance(row.get("id"), int | str) else "")
            found = [("error", each) for each in rows.failures_in(row)]
            for place, scores in enumerate(_scores_in(row), start=1):
                for scorer, score in scores.items():
                    if demands.no_low and score.get("label") == "low":
                        found.append(("failure", f"scored turn {place}: {scorer} is low: {score['value']:.3f}"))
            file.write(case(name, found))
        file.write(case("all turns", [("failure", each) for each in shortfalls]) + "</testsuite>\n")


# What XML 1.0 cannot hold, whatever stands for it.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _quote(text: str) -> str:
    return quoteattr(_NOT_XML.sub("?", text))


def _with_interval(mean: ClusteredMean, digits: int, factor: int = 1, most: float = math.inf) -> str:
    shown = f"{factor * mean.mean:.{digits}f}"
    interval = mean.interval() if math.isinf(most) else mean.interval_within(most)
    if interval is None:
        return shown
    low, high = (factor * each for each in interval)
    return f"{shown} [{low:.{digits}f}, {high:.{digits}f}]"


T = TypeVar("T")


class UndeliveredError(StoppedError):
    """Who gets the rows did not take one, which is not written to the output then."""


@dataclass(frozen=True, kw_only=True)
class Patient:
    """Asks the service at its pace, and again while that may help, for `wait_seconds` at most."""

    pace: Pace
    clock: Clock
    wait_seconds: float
    timeout_seconds: float
    # Asks something small, which tells a line that is too much from a service that takes none.
    probe: Callable[[float], Awaitable[object]] | None = None

    async def ask(self, call: Callable[[float], Awaitable[T]]) -> T:
        """What the call returns, which takes its timeout.

        Raises its error where asking again does not help, or did not for `wait_seconds` though the service answers
        something small; StoppedError, for all lines, where it does not.
        """
        refused_at: float | None = None
        timeout = self.timeout_seconds
        while True:
            begun_in = await self.pace.begin()
            try:
                answer = await call(timeout)
            except TurnScoreError as error:
                now = self.clock.now()
                if isinstance(error, UnauthenticatedError):
                    raise self._stop(error, 0.0) from error
                # The same line may be answered later: no room, no time, no service, or a proxy that reports that.
                if not (is_retryable(error) or isinstance(error, DeadlineExceededError)):
                    self.pace.answered()
                    raise
                refused_at = now if refused_at is None else refused_at
                if now - refused_at >= self.wait_seconds:
                    if await self._answers():
                        raise
                    raise self._stop(error, self.wait_seconds) from error
                pause = self._note(error, begun_in)
                if isinstance(error, DeadlineExceededError):
                    timeout = min(2 * timeout, max(self.timeout_seconds, self.wait_seconds))
            else:
                self.pace.answered()
                return answer
            finally:
                self.pace.end()
            await self.clock.sleep_async(pause)

    def _stop(self, error: TurnScoreError, waited: float) -> StoppedError:
        told = f"the service took no line for {waited:g} s; the last answer: " if waited else ""
        stopped = StoppedError(f"{told}{error}")
        self.pace.stop(stopped)
        return stopped

    async def _answers(self) -> bool:
        try:
            if self.probe is not None:
                await self.probe(self.timeout_seconds)
        except TurnScoreError:
            return False
        return self.probe is not None

    def _note(self, error: TurnScoreError, begun_in: int) -> float:
        """Lets the pace know; the seconds before the next attempt."""
        hint_ms = error.retry_after_ms if isinstance(error, ServiceError) else None
        has_no_room = isinstance(error, ServiceError) and error.code != ErrorCode.NOT_READY
        return self.pace.refused(begun_in, hint_ms, is_gone=not has_no_room)


async def read_models(client: AsyncCalls, patient: Patient) -> ModelsReply:
    """What the service has loaded; says on stderr that it is waited for."""
    is_told = False

    async def read(timeout: float) -> ModelsReply:
        nonlocal is_told
        try:
            return await client.models(timeout_seconds=timeout)
        except TurnScoreError as error:
            if is_retryable(error) and patient.wait_seconds and not is_told:
                is_told = True
                typer.echo(f"turnscore: waits {patient.wait_seconds:g} s at most: {error}", err=True)
            raise

    return await patient.ask(read)


async def in_order(works: Iterable[Coroutine[Any, Any, T]], pace: Pace) -> AsyncGenerator[T, None]:
    """What each returns, in order; a bounded number is begun ahead. Raises what one raises."""
    tasks: deque[asyncio.Task[T]] = deque()
    try:
        for work in works:
            tasks.append(asyncio.create_task(work))
            if len(tasks) > pace.most * _defaults.LINES_AHEAD:
                yield await tasks.popleft()
        while tasks:
            yield await tasks.popleft()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def score_lines(
    client: AsyncCalls,
    lines: Iterable[Line],
    scorers: Sequence[str] | None,
    patient: Patient,
    limits: Limits,
    find: Callable[[Line], Row | None] = lambda _: None,
) -> AsyncGenerator[tuple[Line, Row, bool], None]:
    """Each line, its row, and whether `find` had it, so that it was not asked for. In order. Raises StoppedError."""

    async def take(line: Line, known: Row | None) -> tuple[Line, Row, bool]:
        row = known or await score_line(client, line, scorers, patient, limits)
        return line, row, known is not None

    return in_order((take(line, find(line)) for line in lines), patient.pace)


def patient_with(
    client: AsyncCalls, scorers: Sequence[str] | None, concurrency: int, times: tuple[float, float], **asked: Any
) -> Patient:
    """For this client; `times` are the seconds of a call and of waiting, `asked` goes with the probe."""
    short = [("user", "well?"), ("system", "ok.")]  # for scorers of user turns, and the others
    return Patient(
        pace=Pace(concurrency, client._clock),
        clock=client._clock,
        timeout_seconds=times[0],
        wait_seconds=times[1],
        probe=lambda timeout: client.score_dialogue(short, scorers=scorers, timeout_seconds=timeout, **asked),
    )


async def score_line(
    client: AsyncCalls, line: Line, scorers: Sequence[str] | None, patient: Patient, limits: Limits
) -> Row:
    """The line's row, with all its fields; the reply's go before them."""
    try:
        asked = rows.read_line(line.raw, scorers, limits)
        row = rows.row_of(asked, await patient.ask(lambda timeout: _call(client, asked, timeout)))
    except TurnScoreError as error:
        row = {**rows.kept_of(line.raw), "error": rows.describe(error)}
    return {**row, "line": line.number}


async def _call(client: AsyncCalls, asked: rows.Asked, timeout_seconds: float) -> ScoreReply | DialogueReply:
    fields: dict[str, Any] = {**asked.fields, "timeout_seconds": timeout_seconds}
    if asked.kind == "response":
        return await client.score(**fields)
    return await client.score_dialogue(**fields)
