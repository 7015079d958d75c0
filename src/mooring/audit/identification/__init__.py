"""Linkage in galleries; membership and record search by likelihood."""
