"""Other engines for the same protocol: participants over NVIDIA FLARE, the analyst on Dask.

Both are optional, and no result differs.
"""
