"""Survival tables that ship with SurvSet, which is optional: `pip install SurvSet`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from mooring import StorageError


def load_survival(name: str) -> Any:
    """Return a table of SurvSet as pyarrow columns: "time", "event" with the words no and yes, and the covariates."""
    if find_spec("SurvSet") is None:
        raise StorageError(
            f"the survival table {name!r}", reason="SurvSet is not installed", cure="pip install SurvSet."
        )
    from SurvSet.data import SurvLoader

    frame = SurvLoader().load_dataset(ds_name=name)["df"]
    columns = {key: frame[key].to_numpy() for key in frame.columns if key not in ("pid", "event", "time2")}
    columns["event"] = ["yes" if happened else "no" for happened in frame["event"]]
    return pa.table({key: pa.array(list(values), from_pandas=True) for key, values in columns.items()})
