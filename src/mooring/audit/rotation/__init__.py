"""Rotation in an audit: its operating point, its simulation, and the attacks on uploaded rows with their figures.

It is not part of `mooring.mechanisms.rotation`, since attacks and learners import that.
"""
