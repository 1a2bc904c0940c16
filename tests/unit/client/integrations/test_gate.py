"""The gate: what is done about a low reply or a fed-up user, inside a deadline and a budget of calls."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
from support.conditions import until
from turnscore_client.integrations import QualityGate
from turnscore_client.integrations import _gate as module
from turnscore_client.testing import MockTurnScore

ASKED = [{"role": "user", "content": "a secret question"}]
VALUES = {"bad": 0.2, "worse": 0.1, "good": 0.9}
AGAIN = {"ask": lambda _: "good"}


@pytest.fixture
def mock():
    return MockTurnScore(scores=lambda request: {"quality": VALUES[request.response]}, thresholds={"quality": 0.5})


@pytest.fixture
def make(mock):
    """Gates of the mock's service, which are closed at the end."""
    made = []

    def make_one(on_low=None, **given):
        made.append(QualityGate(on_low, **{"client": mock.client(max_retries=0), **given}))
        return made[-1]

    yield make_one
    for gate in made:
        gate.close()


def with_threads(gate, first, **given):
    return gate.choose(ASKED, first, **given)


def with_asyncio(gate, first, *, ask=None, **given):
    async def answer(model):
        assert ask is not None
        return ask(model)

    return asyncio.run(gate.achoose(ASKED, first, **({"ask": answer} if ask else {}), **given))


@pytest.fixture(params=[with_threads, with_asyncio])
def choose(request):
    return request.param


ASKED_AGAIN = [
    ("good", "bad", "good", 0),
    ("bad", "good", "good", 1),
    ("bad", "worse", "bad", 1),  # the second is lower still
    ("bad", "bad", "bad", 1),
    ("bad", None, "bad", 1),
    ("bad", " ", "bad", 1),
]


@pytest.mark.parametrize(("first", "second", "chosen", "asked"), ASKED_AGAIN)
@pytest.mark.parametrize("min_quality", [None, 0.3])
def test_a_low_reply_is_asked_for_again(choose, make, first, second, chosen, asked, min_quality):
    gate, models = make("ask_again", min_quality=min_quality), []
    assert choose(gate, first, ask=lambda model: (models.append(model), second)[1]) == chosen
    assert models == [None] * asked
    assert (gate.passed, gate.low) == (1 - asked, asked)


def test_a_label_is_not_a_value(choose, make):
    gate = make("ask_again", min_quality=0.1)
    assert choose(gate, "bad", **AGAIN) == "bad"


def test_a_scorer_without_a_label_lets_all_pass_and_says_so_once(choose, make, mock, caplog):
    mock.thresholds.clear()
    gate = make("ask_again")
    assert [choose(gate, "bad", **AGAIN) for _ in range(2)] == ["bad", "bad"]
    assert gate.unknown == 2
    assert caplog.text.count("min_quality") == 1


def events():
    """What functions of each kind were called with."""
    told = []

    def say_good(event):
        told.append(event)
        return "good"

    async def say_good_later(event):
        return say_good(event)

    return told, {"function": say_good, "coroutine": say_good_later, "partial": lambda event: say_good_later(event)}


@pytest.mark.parametrize("action", ["fallback_model", "hand_over"])
@pytest.mark.parametrize("kind", ["function", "coroutine", "partial"])
def test_a_function_answers_in_place_of_a_low_reply(choose, make, action, kind):
    told, functions = events()
    gate = make(action, **{action: functions[kind]})
    assert choose(gate, "bad", conversation="chat 7") == "good"
    [event] = told
    assert (event.messages, event.reply, event.score.value) == (ASKED, "bad", 0.2)
    assert (event.signal, event.conversation) == (None, "chat 7")


def test_a_stronger_model_is_asked_by_its_name(choose, make):
    gate = make("fallback_model", fallback_model="strong")
    assert choose(gate, "bad", ask={"strong": "good"}.get) == "good"


def test_a_message_is_said_though_it_scores_lower_or_nothing_where_a_person_was_told(choose, make, mock):
    gate = make("hand_over", hand_over="worse")
    assert choose(gate, "bad") == "worse"
    assert len(mock.requests) == 1
    gate = make("hand_over", hand_over=lambda event: None)
    assert choose(gate, "bad") == "bad"


def asked_of(mock):
    """Each request's scorer, whose turn it scores, the turn, and the number of those before it."""
    bodies = [request.body for request in mock.requests]
    return [
        (each["scorers"][0], each.get("speaker", "system"), each["response"], len(each.get("context", [])))
        for each in bodies
    ]


def react(mock, *signals):
    """Gives the service a scorer `reaction` that finds these signals, the likeliest first, in any user's turn."""
    mock.signals = {"reaction": list(signals)}
    mock.scores = lambda request: {"reaction": 0.5, "quality": VALUES.get(request.response, 0.5)}


REACTION, FIRST = ("reaction", "user", "a secret question", 0), ("quality", "system", "bad", 1)


SIGNALS = [
    ("frustrated", [], "bad", [REACTION]),
    ("frustrated", ["pleased"], "bad", [REACTION]),
    ("frustrated", ["frustrated"], "a person", [REACTION]),  # hand_over is given: it goes first
    (("abuse", "frustrated"), ["wants_out", "frustrated"], "a person", [REACTION]),
    ({"corrects": "fallback_model"}, ["corrects"], "good", [REACTION, FIRST, ("quality", "system", "good", 1)]),
    ({"corrects": "ask_again"}, ["corrects"], "bad", [REACTION, FIRST, ("quality", "system", "worse", 1)]),
    ({"corrects": "ask_again", "abuse": "hand_over"}, ["abuse", "corrects"], "a person", [REACTION]),
]


@pytest.mark.parametrize(("on_user", "signals", "chosen", "asked"), SIGNALS)
def test_a_user_s_signal_has_the_reply_replaced(choose, make, mock, on_user, signals, chosen, asked):
    react(mock, *signals)
    gate = make(on_user=on_user, hand_over="a person", fallback_model="strong")
    assert choose(gate, "bad", ask=lambda model: "good" if model else "worse") == chosen
    assert asked_of(mock) == asked
    assert gate.signalled == (chosen != "bad" or len(asked) > 1)


CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]}


@pytest.mark.parametrize(
    "since",
    [
        [{"role": "assistant", "content": "one moment"}],
        [CALL, {"role": "tool", "tool_call_id": "1", "content": "no order of that number"}],
    ],
)
def test_the_user_s_last_turn_is_asked_about_whatever_was_said_and_called_since(make, mock, since):
    react(mock, "wants_out")
    assert make(on_user="wants_out", hand_over="a person").choose([*ASKED, *since], "bad") == "a person"
    assert asked_of(mock) == [REACTION]


def test_a_turn_of_the_user_is_handed_over_once_however_many_messages_answer_it(make, mock):
    react(mock, "wants_out")
    gate = make(on_user="wants_out", hand_over="a person")
    first = {"role": "assistant", "content": "one moment"}
    answered = [gate.choose(said, "bad", conversation="c") for said in (ASKED, [*ASKED, first])]
    again = [*ASKED, first, {"role": "user", "content": "are you there?"}]
    assert [*answered, gate.choose(again, "bad", conversation="c")] == ["a person", "bad", "a person"]


def test_a_signal_that_nobody_knows_is_told_once(make, mock, caplog):
    react(mock, "frustrated")
    gate = make(on_user="frustated")
    assert [gate.choose(ASKED, "bad", **AGAIN) for _ in range(2)] == ["bad"] * 2
    assert [record.message for record in caplog.records].count(
        "reaction:0.0.0 has no signal frustated, on which the gate is to act"
    ) == 1


def test_what_had_not_begun_when_its_time_was_over_never_begins(make, mock, monkeypatch):
    monkeypatch.setattr(module._defaults, "GATE_THREADS", 1)
    released, told = threading.Event(), []

    def tell(event):
        told.append(event.conversation)
        released.wait(5)

    react(mock, "wants_out")
    gate = make(on_user="wants_out", hand_over=tell, deadline_seconds=0.3)
    assert [gate.choose(ASKED, "bad", conversation=name) for name in "ab"] == ["bad", "bad"]
    released.set()
    gate._threads.shutdown(wait=True)
    assert told == ["a"]


def test_a_service_without_reaction_still_has_low_replies_replaced(choose, make):
    gate = make("ask_again", on_user="wants_out")
    assert [choose(gate, "bad", **AGAIN, conversation=name) for name in "abcd"] == ["good"] * 4


@pytest.mark.parametrize("is_named", [True, False])
def test_a_conversation_has_its_budget_of_calls_and_all_have_that_of_an_hour(choose, make, monkeypatch, is_named):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock.now)
    gate = make("ask_again", max_calls_per_conversation=2, max_calls_per_hour=3)

    def talk(name, times):
        own = {"conversation": name} if is_named else {}
        monkeypatch.setitem(ASKED[0], "content", name)
        return [choose(gate, "bad", **AGAIN, **own) for _ in range(times)]

    assert talk("chat 7", 3) == ["good", "good", "bad"]
    assert talk("chat 8", 2) == ["good", "bad"]
    clock.now += 3600
    assert talk("chat 7", 1) == ["bad"]
    assert talk("chat 8", 2) == ["good", "bad"]
    assert (gate.low, gate.over_budget) == (8, 4)


def test_to_hand_over_is_no_call_of_a_model(choose, make):
    gate = make("hand_over", hand_over="a person", max_calls_per_hour=1)
    assert [choose(gate, "bad") for _ in range(3)] == ["a person"] * 3


def test_conversations_are_forgotten_when_there_are_too_many(make, monkeypatch):
    monkeypatch.setattr(module._defaults, "CONVERSATIONS", 2)
    gate = make("ask_again", max_calls_per_conversation=1)
    said = [gate.choose(ASKED, "bad", **AGAIN, conversation=name) for name in "abbca"]
    assert said == ["good", "good", "bad", "good", "good"]


@pytest.mark.parametrize("code", ["overloaded", "internal", "unauthenticated"])
def test_a_service_that_refuses_lets_the_first_reply_pass(choose, make, mock, code, caplog):
    gate = make("ask_again")
    mock.fail_next(code)
    assert choose(gate, "bad", ask=lambda _: pytest.fail("nobody knows that it is low")) == "bad"
    assert gate.unknown == 1
    assert "secret" not in caplog.text


@pytest.mark.parametrize("action", ["ask_again", "fallback_model", "hand_over"])
def test_what_fails_leaves_the_first_reply(choose, make, caplog, action):
    def explode(_):
        raise RuntimeError("a secret answer")

    gate = make(action, fallback_model=explode, hand_over=explode)
    assert choose(gate, "bad", ask=explode) == "bad"
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("is_stubborn", [False, True])
async def test_a_second_answer_that_comes_too_late_is_cancelled(make, is_stubborn):
    gate, ended, cancelled = make("ask_again", deadline_seconds=0.3), asyncio.Event(), []

    async def again(_):
        try:
            await ended.wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            if is_stubborn:
                await ended.wait()
            raise
        return "good"

    assert await gate.achoose(ASKED, "bad", ask=again) == "bad"
    await until(lambda: cancelled, 30)
    ended.set()


@pytest.mark.parametrize("action", ["ask_again", "fallback_model", "hand_over"])
def test_a_second_answer_that_hangs_in_a_thread_keeps_no_reply(make, action):
    ended = threading.Event()

    def hang(_):
        assert ended.wait(30)
        return "good"

    gate = make(action, fallback_model=hang, hand_over=hang, deadline_seconds=0.3)
    assert gate.choose(ASKED, "bad", ask=hang) == "bad"
    if action != "ask_again":
        assert with_asyncio(gate, "bad") == "bad"
    ended.set()


class HungClient:
    """Answers when the test is over; for threads, its caller bounds the time as a real client does."""

    def __init__(self):
        self.gate = threading.Event()
        self.calls = 0

    def score(self, *, timeout_seconds, **_):
        self.calls += 1
        self.gate.wait(timeout_seconds)
        raise TimeoutError


@pytest.mark.parametrize("more", [{}, {"on_user": "frustrated"}])
def test_a_service_that_hangs_costs_the_deadline_and_after_some_times_nothing(choose, make, monkeypatch, more):
    monkeypatch.setattr(module._defaults, "GATE_OPEN_SECONDS", 60.0)
    hung = HungClient()
    gate = make("ask_again", client=hung, deadline_seconds=0.1, **more)
    for _ in range(3):
        assert choose(gate, "bad", **AGAIN) == "bad"
    assert hung.calls == 3
    for _ in range(20):
        assert choose(gate, "bad", **AGAIN) == "bad"
    assert hung.calls == 3
    assert gate.unknown == 23
    hung.gate.set()


SENSELESS_OPTIONS = [
    ({"deadline_seconds": 0}, "deadline_seconds"),
    ({"deadline_seconds": float("inf")}, "deadline_seconds"),
    ({"max_calls_per_hour": 0}, "max_calls_per_hour"),
    ({"max_calls_per_conversation": -1}, "max_calls_per_conversation"),
    ({"url": "nowhere"}, "url"),
    ({"on_low": None}, "on_low or on_user"),
    ({"on_low": None, "on_user": "abuse", "min_quality": 0.5}, "needs on_low"),
    ({"on_low": "shrug"}, "must be one of"),
    ({"on_user": {"abuse": "shrug"}}, "must be one of"),
    ({"on_low": "hand_over"}, "hand_over is missing"),
    ({"on_user": {"abuse": "fallback_model"}}, "fallback_model is missing"),
    ({"min_quality": "0.5"}, "min_quality must be a number"),
]


@pytest.mark.parametrize(("given", "named"), SENSELESS_OPTIONS)
def test_options_without_sense_are_refused_at_the_start(given, named):
    with pytest.raises(ValueError, match=named):
        QualityGate(**{"on_low": "ask_again", **given})


def test_a_gate_that_needs_a_model_refuses_a_caller_without_one(choose, make):
    gate = make("ask_again")
    with pytest.raises(ValueError, match="ask_again"):
        choose(gate, "good")
    gate = make("fallback_model", fallback_model="strong")
    with pytest.raises(ValueError, match="fallback_model"):
        gate.check("a framework without names", dict)
