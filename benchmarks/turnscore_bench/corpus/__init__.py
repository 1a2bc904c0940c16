"""What scoring a corpus costs: the engine, the local run and the one on Ray beside the bare runtime and other ways."""
