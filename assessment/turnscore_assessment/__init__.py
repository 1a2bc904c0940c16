"""People's judgements of dialogue systems: ratings, reports, replication, and scores against them. Trains nothing."""
