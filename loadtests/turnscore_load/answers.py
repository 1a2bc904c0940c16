"""What became of the calls of a load: one checker of answers for every API, and the sums over a stage of calls."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from turnscore_wire import ERROR_TABLE, ErrorCode

from turnscore_load.results import percentile

Outcome = Literal["answered", "refused", "expired", "failed"]
OUTCOMES: tuple[Outcome, ...] = ("answered", "refused", "expired", "failed")
_REFUSED, _EXPIRED = ERROR_TABLE[ErrorCode.OVERLOADED], ERROR_TABLE[ErrorCode.DEADLINE_EXCEEDED]
_HONEST: Mapping[str, Outcome] = {ErrorCode.OVERLOADED: "refused", ErrorCode.DEADLINE_EXCEEDED: "expired"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAnswer:
    """What became of one call.

    answered: every score that was asked for. refused: no room, with advice when to come again. expired: the deadline
    passed, for all of it or a part. failed: anything else, the connection included; `why` says what.
    """

    outcome: Outcome
    why: str = ""
    retry_after_seconds: float | None = None


def judge_http(status: int, retry_after: str | None, body: bytes, why: str = "") -> CallAnswer:
    """The answer that an HTTP reply is; status 0 stands for none, and `why` says why there was none."""
    if status == 200:
        try:
            reply = json.loads(body)
        except ValueError:
            reply = None
        return judge_fields(reply, "200")
    if status == _REFUSED.http_status:
        if retry_after is None or not retry_after.isdecimal():
            return CallAnswer(outcome="failed", why="429 without a Retry-After in seconds")
        return CallAnswer(outcome="refused", retry_after_seconds=_retry_seconds(body, float(retry_after)))
    if status == _EXPIRED.http_status:
        return CallAnswer(outcome="expired")
    return CallAnswer(outcome="failed", why=why or f"status {status}")


def judge_foreign(status: int, _: str | None, body: bytes, why: str = "") -> CallAnswer:
    """The same of a server that is not ours: 200 is an answer, 429 and 503 are refusals."""
    if status == 200:
        return CallAnswer(outcome="answered")
    if status in (429, 503):
        # between a refusal that names no time and the next attempt; chosen
        return CallAnswer(outcome="refused", retry_after_seconds=_retry_seconds(body, 0.05))
    return CallAnswer(outcome="failed", why=why or f"status {status}: {body[:300].decode(errors='replace')}")


def judge_grpc(status: str, pushback: str | None = None) -> CallAnswer:
    """The answer that a gRPC error is: the name of its status, and the advice in its trailers."""
    if status == _REFUSED.grpc_code:
        if pushback is None or not pushback.isdecimal():
            return CallAnswer(outcome="failed", why=f"{status} without advice in milliseconds")
        return CallAnswer(outcome="refused", retry_after_seconds=int(pushback) / 1000)
    if status == _EXPIRED.grpc_code:
        return CallAnswer(outcome="expired")
    return CallAnswer(outcome="failed", why=status)


def _retry_seconds(body: bytes, otherwise: float) -> float:
    """Our own error says it in milliseconds, more closely than the header's seconds."""
    try:
        return float(json.loads(body)["error"]["retry_after_ms"]) / 1000
    except (ValueError, KeyError, TypeError):
        return otherwise


def judge_fields(reply: Any, status: str) -> CallAnswer:
    """Of a reply's fields, whatever it came by."""
    try:
        codes = set(_error_codes(reply))
    except (ValueError, KeyError, TypeError, AttributeError):
        return CallAnswer(outcome="failed", why=f"{status} with a body that is no reply")
    if wrong := sorted(codes - set(_HONEST)):
        return CallAnswer(outcome="failed", why=f"{status} with {', '.join(wrong)} inside")
    outcomes = {_HONEST[code] for code in codes}
    return CallAnswer(outcome="expired" if "expired" in outcomes else "refused" if outcomes else "answered")


def _error_codes(reply: Any) -> Iterator[str]:
    """The codes of everything that was not scored, of a reply to one item, to several or to a ranking."""
    if (several := reply.get("results", reply.get("candidates"))) is not None:
        for result in several:
            yield from _error_codes(result)
    elif "error" in reply:
        yield reply["error"]["code"]
    else:
        errors = reply.get("errors", {})  # a gRPC message without any has no such field
        yield from (error["code"] for error in errors.values())
        if not reply.get("scores") and not errors:
            raise ValueError("neither a score nor an error")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One call. Seconds are of the event loop's clock; a call is due when its caller wanted to make it."""

    due_at: float
    sent_at: float
    done_at: float
    answer: CallAnswer
    body: bytes = b""  # of the reply, where replies are kept

    @property
    def took_ms(self) -> float:
        return 1000 * (self.done_at - self.due_at)

    @property
    def late_ms(self) -> float:
        """How long the sender took to send it: the sender's fault, and yet part of `took_ms`."""
        return 1000 * (self.sent_at - self.due_at)


@dataclass(frozen=True, slots=True)
class Stage:
    """The calls of one stage, which sent from `began_at` for that many seconds."""

    calls: Sequence[CallRecord]
    began_at: float
    seconds: float

    def count(self, outcome: Outcome) -> int:
        return sum(call.answer.outcome == outcome for call in self.calls)

    def failures(self) -> Counter[str]:
        return Counter(call.answer.why for call in self.calls if call.answer.outcome == "failed")

    def goodput(self, deadline_ms: float) -> float:
        """Complete answers per second within their deadline that came while the stage lasted."""
        end = self.began_at + self.seconds
        good = (
            call.answer.outcome == "answered" and call.took_ms <= deadline_ms and call.done_at <= end
            for call in self.calls
        )
        return sum(good) / self.seconds

    def took_ms(self, percent: int, *outcomes: Outcome) -> float:
        """That percentile of the times of the calls with one of those outcomes; 0 where there were none."""
        return percentile((call.took_ms for call in self.calls if call.answer.outcome in outcomes), percent)
