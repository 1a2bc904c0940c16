"""`make bench`: turnscore beside the bare runtime and other servers, in one run."""
