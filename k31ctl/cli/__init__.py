"""Commands: names, options and exit codes."""
