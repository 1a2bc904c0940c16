"""The GPU benchmark: models of random weights, the bare runtime, torch beside it, and the service."""
