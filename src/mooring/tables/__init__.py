"""Tables and images as rows of numbers: one reader, schema, column inference and encoder; rows split among participants."""

from mooring.tables.encoder import EncodedRows, TableFit, encode_table, encoded_batches
from mooring.tables.files import OpenTable, open_table
from mooring.tables.images.pixels import decode_images
from mooring.tables.images.reader import read_idx, read_images
from mooring.tables.inference import fit_scale
from mooring.tables.mapping import ColumnMapping, MappedTable, TableMapping, read_mapping
from mooring.tables.partitioning import Partition, partition
from mooring.tables.reader import read_columns
from mooring.tables.records import Records
from mooring.tables.sampling import round_robin, split_stratified
from mooring.tables.schema import MISSING_WORDS, Column, Label, Schema
from mooring.tables.table_records import InferredTable, infer_table, read_records

__all__ = [
    "MISSING_WORDS",
    "Column",
    "ColumnMapping",
    "EncodedRows",
    "InferredTable",
    "Label",
    "MappedTable",
    "OpenTable",
    "Partition",
    "Records",
    "Schema",
    "TableFit",
    "TableMapping",
    "decode_images",
    "encode_table",
    "encoded_batches",
    "fit_scale",
    "infer_table",
    "open_table",
    "partition",
    "read_columns",
    "read_idx",
    "read_images",
    "read_mapping",
    "read_records",
    "round_robin",
    "split_stratified",
]
