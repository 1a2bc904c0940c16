"""The running service: API, scheduling, cache and lifecycle around turnscore_core's scorers."""

import turnscore_core  # noqa: F401 - keeps ONNX Runtime from reporting home, before anything imports it
