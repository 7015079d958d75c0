"""A study's settings: the TOML files, read and checked."""
