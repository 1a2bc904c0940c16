"""Runs graphs on devices: ONNX Runtime sessions, tokenizers, and what the machine offers them."""
