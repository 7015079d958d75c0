"""Folders, object stores and presigned uploads."""
