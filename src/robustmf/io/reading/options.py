"""Constants of the readers of files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReadingOptions:
    """How much is read at once, and what is accepted.

    Attributes
    ----------
    buffer_bytes : int
        Bytes that are decompressed at once.
    arrow_bytes, max_arrow_bytes : int
        Bytes of text that Arrow parses at once, at least a line: its default, and at most.
    grouped_bytes : int
        Bytes of a file of ratings by groups that are parsed at once.
    copied_bytes : int
        Bytes that are copied at once into a file without some entries.
    max_compression : int
        Largest ratio of the size of the data to that of the compressed file which is accepted for
        data of more than ``small_size`` bytes; ratings are not compressible to that extent.
    small_size : int
        Bytes of data that any compressed file may contain.
    row_bytes : int
        Bytes of two ids and a value, by which the number of rows that a Parquet file claims is
        compared with its size.
    small_shape, max_shape_per_entry : int
        Numbers of rows and columns that are accepted for any number of entries, and per entry: the
        pointers of rows and columns take 8 bytes each.
    sampled_lines, sampled_characters : int
        Lines from which a layout is guessed, and characters after which no further line is sampled.
    max_fields : int
        Largest number of fields of a line; each takes memory far beyond its text.
    max_long_fields : int
        Files with more columns of numbers than this, and without known names, are taken for wide
        ones.
    max_arrow_columns : int
        Files with more fields per line than this are read line by line: an Arrow column takes about
        8 kB, however few values it has.
    """

    buffer_bytes: int = 1 << 20
    arrow_bytes: int = 1 << 20
    max_arrow_bytes: int = 1 << 26
    grouped_bytes: int = 1 << 24
    copied_bytes: int = 1 << 22
    max_compression: int = 200
    small_size: int = 10**8
    row_bytes: int = 24
    small_shape: int = 10**6
    max_shape_per_entry: int = 100
    sampled_lines: int = 100
    sampled_characters: int = 1 << 21
    max_fields: int = 1_000_000
    max_long_fields: int = 5
    max_arrow_columns: int = 4096


OPTIONS = ReadingOptions()
