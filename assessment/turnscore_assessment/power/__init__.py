"""Power: how many workers and dialogues show a difference, from the ratings of a pilot study."""
