"""The command line: one file a command; `app` only registers."""
