"""What `loadtests/run.py NAME` runs: each module has a `main` whose arguments are options and that returns a Result."""
