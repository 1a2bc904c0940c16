"""The commands' options; the work is done elsewhere."""
