"""Takes a checked request to its scores: admission, batches, and what is merged on the way."""
