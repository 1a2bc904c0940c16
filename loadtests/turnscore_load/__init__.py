"""Load tests of a running turnscore service on this machine. The module `users` needs Locust, which patches sockets."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # ONNX Runtime reads it when it is imported
