"""The report on an output: the scores' spread, drift, the worst and the best. Reads manifests and tables, no input."""
