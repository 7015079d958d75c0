"""Optional engines for the same protocol: participants over NVIDIA FLARE, and the analyst on Dask.

Bundles and alignment are the same as without them. Models on Dask are trained on all rows instead of a sample.
"""
