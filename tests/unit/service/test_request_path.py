"""How far one request travels: the files it enters, the functions it calls, and the types that carry its turn.

Ceilings, which only fall: a maintainer should be able to read what serves a request in an afternoon.
"""

import sys
import threading
from collections import Counter

import turnscore_core
import turnscore_models
import turnscore_service
import turnscore_wire
from support.transports import http_client
from turnscore_models.bundle import starter_bundles
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.settings.service import Settings

# Files, functions and calls of the least disturbed of four requests: the first makes what is made once, and on a busy
# machine metrics are written meanwhile, or a thread tokenizes.
MOST, MOST_TYPES = (30, 150, 261), 8
SAID = "Oh no, what happened there?"
OURS = tuple(each.__path__[0] for each in (turnscore_core, turnscore_models, turnscore_service, turnscore_wire))


class Trace:
    """Counts the calls of our own code in every thread that begins while it is in place."""

    def __init__(self):
        self.is_on = False
        self.calls = Counter()
        self.objects = {}

    def __call__(self, frame, event, arg):
        code = frame.f_code
        if not self.is_on or event != "call":
            return
        if code.co_filename.startswith(OURS):
            self.calls[code.co_filename, code.co_qualname, code.co_firstlineno] += 1
        for value in frame.f_locals.values():
            if type(value).__module__.startswith("turnscore_"):
                self.objects[id(value)] = value  # kept, so that no id is used twice

    def sizes(self):
        """Files, functions without lambdas and comprehensions, and calls."""
        functions = [name for _, name, _ in self.calls if not name.endswith(">")]
        return len({file for file, _, _ in self.calls}), len(functions), self.calls.total()

    def carriers(self):
        """The types of which an object held the response, its row of tokens, or another such object, in a field."""
        fields, found, before = {key: list(fields_of(each)) for key, each in self.objects.items()}, set(), None
        while found != before:
            before = found
            found = {key for key, held in fields.items() if any(carries(*each, before) for each in held)}
        return {type(self.objects[key]).__qualname__ for key in found}


def fields_of(value):
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        yield from ((name, getattr(value, name, None)) for name in ((slots,) if isinstance(slots, str) else slots))


def carries(name, value, found):
    if isinstance(value, list | tuple) and any(id(each) in found for each in value):
        return True
    return value == SAID or id(value) in found or (name == "rows" and isinstance(value, tuple))


async def test_a_request_enters_few_files_and_calls_few_functions():
    [bundle] = [folder for folder in starter_bundles() if folder.name == "quality"]
    trace, before, found = Trace(), sys.getprofile(), []
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        runtime = Runtime(Settings(models=(f"{bundle}/",), runtime={"threads": 1}))
        runtime.start()
        await runtime.wait_until_loaded()
        async with http_client(runtime) as client:
            asked = {"context": [{"speaker": "user", "text": "What a day!"}]}
            trace.is_on = True
            for said in ("Well, tell me more.", f"{SAID} Tell me.", f"{SAID} And then?", SAID):
                trace.calls.clear()
                (await client.post("/v1/score", json={**asked, "response": said})).raise_for_status()
                found.append(trace.sizes())
            trace.is_on = False
        await runtime.stop()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    assert all(min(each) <= most for *each, most in zip(*found, MOST, strict=True)), found
    assert len(trace.carriers()) <= MOST_TYPES, trace.carriers()
