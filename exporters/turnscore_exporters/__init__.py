"""Checkpoints to bundles: training, ONNX export and parity. The only home of torch and transformers."""

import turnscore_core as turnscore_core  # before ONNX Runtime: keeps it from reporting home
