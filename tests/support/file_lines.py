"""Lines of a file to score, and the patience with which they are."""

import json

from turnscore_client._files.rows import Line
from turnscore_client._files.scoring import Pace, Patient
from turnscore_client.testing import ManualClock


def line_of(content, number=1):
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Line(number, raw + b"\n", 0)


def patient_with(clock=None, most=4, wait=60.0, timeout=10.0, probe=None):
    clock = clock or ManualClock()
    pace = Pace(most, clock)
    return Patient(pace=pace, clock=clock, wait_seconds=wait, timeout_seconds=timeout, probe=probe)
