"""The subcommands of `turnscore-assess`: a module each, in which `run` is the command; `main` finds them."""
