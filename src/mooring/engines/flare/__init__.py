"""Participants over NVIDIA FLARE: a job whose sites run code that is installed there, and none that is sent."""
