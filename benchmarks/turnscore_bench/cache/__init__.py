"""`make bench-cache`: what the score cache saves and costs, and what a sick Redis does to latency, in one run."""
