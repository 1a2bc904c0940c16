"""What is scored: files, the blocks that they are cut into, and the dialogues in a block's rows."""
