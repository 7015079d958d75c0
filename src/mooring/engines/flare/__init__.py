"""Participants over NVIDIA FLARE. Sites run only code that is installed there; a job carries no code."""
