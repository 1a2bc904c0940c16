"""The process: what is loaded into it, how it starts, stays healthy and ends, and what its machine can do."""
