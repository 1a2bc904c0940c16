"""`make bench-fed`: FED's one pass beside the published way, in one run. Needs no weights."""
