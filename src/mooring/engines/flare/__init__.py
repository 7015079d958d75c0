"""Participants over NVIDIA FLARE: a job of one round whose sites run code that is installed there, and none that is sent."""
