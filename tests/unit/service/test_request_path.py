"""How far one request travels: the files it enters, the functions it calls, and the types that carry its turn.

Ceilings, which only fall: a maintainer should be able to read what serves a request in an afternoon.
"""

import asyncio
import json
import sys
import threading
from collections import Counter
from pathlib import Path

import turnscore_core
import turnscore_models
import turnscore_service
import turnscore_wire
from turnscore_models.bundle import starter_bundles
from turnscore_service.api.http.app import create_app
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.settings.service import Settings

# Of an idle machine 30, 195 and 380, of which 1, 11 and 63 look up, lay out and keep texts' vectors. On a busy one
# metrics are written meanwhile, or a thread tokenizes.
MOST_FILES, MOST_FUNCTIONS, MOST_CALLS, MOST_TYPES = 32, 199, 398, 8
SAID = "Oh no, what happened there?"
_PACKAGES = (turnscore_core, turnscore_models, turnscore_service, turnscore_wire)
_OURS = tuple(str(Path(each.__file__ or "").parent) for each in _PACKAGES)


class Trace:
    """Counts the calls of our own code in every thread that begins while it is in place."""

    def __init__(self):
        self.is_on = False
        self.calls = Counter()
        self.objects = {}

    def __call__(self, frame, event, arg):
        if not self.is_on or event != "call":
            return
        code = frame.f_code
        if code.co_filename.startswith(_OURS):
            self.calls[code.co_filename, code.co_qualname, code.co_firstlineno] += 1
        for value in frame.f_locals.values():
            if type(value).__module__.startswith("turnscore_"):
                self.objects[id(value)] = value  # kept, so that no id is used twice

    @property
    def files(self):
        return {file for file, _, _ in self.calls}

    @property
    def functions(self):
        """Without lambdas and comprehensions."""
        return [each for each in self.calls if not each[1].endswith(">")]

    def carriers(self):
        """The types of which an object held the response, its row of tokens, or another such object, in a field."""
        fields = {key: list(_fields_of(value)) for key, value in self.objects.items()}
        found = set()
        while True:
            more = {
                key for key, held in fields.items() if key not in found and any(_carries(*each, found) for each in held)
            }
            if not more:
                return {type(self.objects[key]).__qualname__ for key in found}
            found |= more


def _fields_of(value):
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        yield from ((name, getattr(value, name, None)) for name in ((slots,) if isinstance(slots, str) else slots))


def _carries(name, value, found):
    if isinstance(value, list | tuple) and any(id(each) in found for each in value):
        return True
    return value == SAID or id(value) in found or (name == "rows" and isinstance(value, tuple))


async def _ask(app, response):
    body = json.dumps({"context": [{"speaker": "user", "text": "What a day!"}], "response": response}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    arriving = [{"type": "http.request", "body": body, "more_body": False}]
    statuses = []

    async def receive():
        if arriving:
            return arriving.pop()
        await asyncio.Event().wait()
        raise AssertionError("nothing more comes")

    async def send(message):
        statuses.append(message.get("status", 0))

    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http"}
    scope |= {"path": "/v1/score", "raw_path": b"/v1/score", "query_string": b"", "root_path": "", "headers": headers}
    await app(scope | {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2)}, receive, send)
    return statuses[0]


async def test_a_request_enters_few_files_and_calls_few_functions():
    [bundle] = [folder for folder in starter_bundles() if folder.name == "quality"]
    trace, before = Trace(), sys.getprofile()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        runtime = Runtime(Settings(models=(f"{bundle}/",), runtime={"threads": 1}))
        runtime.start()
        await runtime.wait_until_loaded()
        app = create_app(runtime)
        assert await _ask(app, "Well, tell me more.") == 200  # what is made once is made
        trace.is_on = True
        assert await _ask(app, SAID) == 200
        trace.is_on = False
        await runtime.stop()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    found = len(trace.files), len(trace.functions), sum(trace.calls.values())
    assert all(each <= most for each, most in zip(found, (MOST_FILES, MOST_FUNCTIONS, MOST_CALLS), strict=True)), found
    assert len(trace.carriers()) <= MOST_TYPES, trace.carriers()
