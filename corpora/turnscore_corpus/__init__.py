"""turnscore: scores corpora of dialogues offline, block by block; a block is committed whole or not at all."""
