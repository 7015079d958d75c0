"""Secure sums in an audit: their operating point, their simulation, and the attacks on the total with their figures.

It is not part of `mooring.mechanisms.sums`, since attacks and learners import that.
"""
