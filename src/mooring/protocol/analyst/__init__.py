"""The analyst: intake, alignment, training, delivery."""
