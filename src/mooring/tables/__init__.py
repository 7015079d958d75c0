"""Tables and images as rows of numbers: one reader, one schema, one encoder; and rows partitioned among participants."""

from mooring.tables.encoder import EncodedRows, encode_table, encoded_batches, read_encoded
from mooring.tables.holdout import hold_out
from mooring.tables.images.idx import read_idx
from mooring.tables.images.pixels import decode_images
from mooring.tables.images.reader import read_images
from mooring.tables.partitioning import Partition, partition
from mooring.tables.reader import open_table, read_ahead, read_columns, table_batches
from mooring.tables.records import Records
from mooring.tables.sampling import sampled_rows
from mooring.tables.schema import MISSING_WORDS, Column, Label, Schema
from mooring.tables.stratification import round_robin, split_off
from mooring.tables.table_records import read_records, read_table

__all__ = [
    "MISSING_WORDS",
    "Column",
    "EncodedRows",
    "Label",
    "Partition",
    "Records",
    "Schema",
    "decode_images",
    "encode_table",
    "encoded_batches",
    "hold_out",
    "open_table",
    "partition",
    "read_ahead",
    "read_columns",
    "read_encoded",
    "read_idx",
    "read_images",
    "read_records",
    "read_table",
    "round_robin",
    "sampled_rows",
    "split_off",
    "table_batches",
]
