"""Other engines for the same protocol: participants over NVIDIA FLARE, the analyst on Dask.

Both are optional. Bundles and maps do not differ; models on Dask are trained on all rows, not on a share of them.
"""
