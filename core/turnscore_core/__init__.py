"""Scores turns: bundles become scorers, turns become rows and batches, and graphs answer.

Importing it keeps ONNX Runtime from reporting home.
"""

import os

# The wheels of ONNX Runtime 1.29 and later write a device id below HOME and send events unless this is set before the
# library is imported; a call afterwards comes too late for the first event (seen with 1.31.1).
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
