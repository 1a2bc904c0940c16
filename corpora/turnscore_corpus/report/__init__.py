"""The report of an output: how scores fall, drift, the worst and the best. Reads manifests and tables, no input."""
