"""Secure sums in an audit: their operating point, their simulation, and the attacks on the total with their figures.

This package is not part of `mooring.mechanisms.sums`, because attacks and learners import `mooring.mechanisms.sums`.
"""
