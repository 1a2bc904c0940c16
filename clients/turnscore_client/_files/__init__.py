"""Files of dialogues through a service: lines in, rows out, gone on with where an earlier run stopped."""
