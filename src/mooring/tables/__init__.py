"""Tables and images as rows of numbers: one reader, schema, column inference and encoder; rows split among participants."""

from mooring.tables.encoder import EncodedRows, TableFit, check_fit, encode_table, encoded_batches, read_encoded
from mooring.tables.files import OpenTable, open_table
from mooring.tables.images.pixels import decode_images
from mooring.tables.images.reader import read_idx, read_images
from mooring.tables.inference import fit_scale
from mooring.tables.partitioning import Partition, partition
from mooring.tables.reader import read_ahead, read_columns, table_batches
from mooring.tables.records import Records, hold_out
from mooring.tables.sampling import make_strata, round_robin, sample_rows, split_stratified
from mooring.tables.schema import MISSING_WORDS, Column, Label, Schema
from mooring.tables.table_records import InferredTable, infer_table, read_records

__all__ = [
    "MISSING_WORDS",
    "Column",
    "EncodedRows",
    "InferredTable",
    "Label",
    "OpenTable",
    "Partition",
    "Records",
    "Schema",
    "TableFit",
    "check_fit",
    "decode_images",
    "encode_table",
    "encoded_batches",
    "fit_scale",
    "hold_out",
    "infer_table",
    "make_strata",
    "open_table",
    "partition",
    "read_ahead",
    "read_columns",
    "read_encoded",
    "read_idx",
    "read_images",
    "read_records",
    "round_robin",
    "sample_rows",
    "split_stratified",
    "table_batches",
]
