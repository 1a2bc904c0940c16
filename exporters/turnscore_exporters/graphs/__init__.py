"""torch to ONNX, and rewrites of graphs: int8, fp16, without padding. Knows no scorer."""
