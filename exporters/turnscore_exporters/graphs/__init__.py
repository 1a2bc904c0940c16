"""torch to ONNX, and the rewriting of graphs: int8, fp16, without padding. Knows no task."""
