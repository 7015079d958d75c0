"""The command line, with one file per command; `app` only registers them."""
