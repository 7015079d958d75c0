"""Rotation between organisations: every participant uploads its rows under a secret rigid map, and an anchor aligns them."""
