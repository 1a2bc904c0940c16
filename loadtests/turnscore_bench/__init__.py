"""`make bench`: turnscore, the bare runtime and other servers on the same model, measured in one run."""
