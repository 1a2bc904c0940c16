"""`make soak`: memory, handles and threads under a long load."""
