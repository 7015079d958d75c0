"""Fuzzing of every reader of bytes that come from another party, or lie on disk."""
