"""Checkpoints to bundles: training, ONNX export and parity. The only home of torch and transformers."""

import turnscore_service as turnscore_service  # before ONNX Runtime: keeps it from reporting home
