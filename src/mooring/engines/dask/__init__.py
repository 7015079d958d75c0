"""The analyst's steps on Dask: workers verify and map bundles, and write and train on the matrix in parts."""

from mooring.engines.dask.analyst import DaskEngine
from mooring.engines.dask.cluster import Tls, connect
from mooring.engines.dask.learners import train_on_dask

__all__ = ["DaskEngine", "Tls", "connect", "train_on_dask"]
