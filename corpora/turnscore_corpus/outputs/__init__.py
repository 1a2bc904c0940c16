"""What is written: tables, one set of files for each block, and the manifest that says that a block is whole."""
