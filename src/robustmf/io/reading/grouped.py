"""Reader of ratings that are listed by groups (all of a movie, or all of a user).

The files are read in blocks, so that the memory is little more than that of the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robustmf.data.ids import Vocabulary
from robustmf.data.observed import Observed
from robustmf.exceptions import DuplicateEntryError, MalformedFileError
from robustmf.io.reading.options import OPTIONS
from robustmf.io.reading.ratings import require_precision
from robustmf.io.reading.source import Source
from robustmf.kernels.grouped import FINE, NO_GROUP, OUT_OF_BOUNDS, parse_grouped


@dataclass(frozen=True)
class GroupedForm:
    """The format of the lines.

    Netflix has ``12:`` for a group and ``345,5,2005-09-06`` for a rating (mark ":", separator ",").
    Yahoo has ``12|3``, a group with its number of ratings, and ``345<tab>90`` (mark "|", tab).

    Parameters
    ----------
    mark : str
        The character that ends the id of a group.
    separator : str
        The character between member and rating.
    bounds : tuple of int
        The lowest and the highest rating, integers from 0 to 255.
    """

    mark: str
    separator: str
    bounds: tuple[int, int]


@dataclass(frozen=True)
class _Block:
    """The ratings and the groups of one block of a file."""

    members: NDArray[np.int32]
    values: NDArray[np.uint8]
    groups: NDArray[np.int64]
    announced: NDArray[np.int64]
    starts: NDArray[np.int64]
    n_lines: int


def read_grouped(sources: Iterable[Source], form: GroupedForm, dtype: str = "float32") -> Observed:
    """Entries with members as rows and groups as columns, e.g. users and movies.

    Parameters
    ----------
    sources : iterable of Source
        The files.
    form : GroupedForm
        The format of their lines.
    dtype : {"float32", "float64"}, default="float32"
        Precision of the values.

    Returns
    -------
    Observed
        With ids; rows are sorted by id, columns are in order of appearance.
    """
    require_precision(dtype)
    sources = list(sources)
    blocks = [block for source in sources for block in _blocks(source, form)]
    if not blocks:
        raise ValueError("sources must contain at least one file")
    sizes = np.cumsum([0, *(len(block.members) for block in blocks)])
    starts = (block.starts + before for block, before in zip(blocks, sizes[:-1], strict=True))
    pointers = np.concatenate([*starts, sizes[-1:]])
    groups = np.concatenate([block.groups for block in blocks]).tolist()
    members = np.concatenate([block.members for block in blocks])
    values = np.concatenate([block.values for block in blocks])
    blocks.clear()
    rows, vocabulary = Vocabulary.encode(members, "row")
    del members
    try:
        return Observed.from_columns(
            pointers, rows.astype(np.int32, copy=False), values, (vocabulary.ids, groups), dtype
        )
    except DuplicateEntryError as error:
        files = (
            ""
            if len(sources) == 1
            else f", in this file or in the {len(sources) - 1} files read with it"
        )
        raise sources[0].fault(
            f"duplicate entry at row {error.row!r}, column {error.column!r} "
            f"(values {error.values[0]!r} and {error.values[1]!r}){files}; "
            "remove one of the lines"
        ) from None


def _blocks(source: Source, form: GroupedForm) -> Iterator[_Block]:
    """The file in blocks of complete lines."""
    n_lines = 0
    rated = 0
    announced = -1
    in_group = False
    any_rated = False
    with source.open() as stream:
        rest = b""
        while True:
            content = stream.read(OPTIONS.grouped_bytes)
            text = rest + content if content else rest + b"\n" * bool(rest)
            end = text.rfind(b"\n") + 1
            rest = text[end:]
            text = text[:end]
            if text:
                block = _parse(source, form, text, n_lines, in_group)
                in_group = in_group or len(block.groups) > 0
                any_rated = any_rated or len(block.members) > 0
                n_lines += block.n_lines
                rated, announced = _check_counts(source, block, rated, announced)
                yield block
            if not content:
                break
    if not any_rated:
        raise source.fault(
            f"the file has no ratings; expected lines such as '1{form.mark}', "
            f"then '{form.separator.join(['7', '5'])}'"
        )
    if announced not in (-1, rated):
        raise source.fault(
            f"its last group announces {announced} ratings, but {rated} follow; "
            "the file is truncated"
        )


def _parse(
    source: Source, form: GroupedForm, text: bytes, lines_before: int, in_group: bool
) -> _Block:
    capacity = text.count(b"\n")
    members = np.empty(capacity, np.int32)
    values = np.empty(capacity, np.uint8)
    groups = np.empty(capacity, np.int64)
    announced = np.empty(capacity, np.int64)
    starts = np.empty(capacity, np.int64)
    n, k, line, problem = parse_grouped(
        np.frombuffer(text, np.uint8),
        ord(form.mark),
        ord(form.separator),
        *form.bounds,
        in_group,
        members,
        values,
        groups,
        announced,
        starts,
    )
    if problem != FINE:
        raise _fault(source, form, text.split(b"\n", line)[line - 1], lines_before + line, problem)
    # copies, so that the unused capacity is released
    return _Block(
        members[:n].copy(),
        values[:n].copy(),
        groups[:k].copy(),
        announced[:k].copy(),
        starts[:k].copy(),
        line,
    )


def _fault(
    source: Source, form: GroupedForm, line: bytes, number: int, problem: int
) -> MalformedFileError:
    shown = ascii(line.decode("utf-8", "replace").rstrip("\r")[:60])
    if problem == NO_GROUP:
        return source.fault(
            f"{shown} is a rating before any line such as '1{form.mark}'; "
            "the beginning of the file is missing",
            number,
        )
    if problem == OUT_OF_BOUNDS:
        return source.fault(
            f"the rating in {shown} is not within {form.bounds[0]} … {form.bounds[1]}; "
            "correct or remove the line",
            number,
        )
    return source.fault(
        f"{shown} is not a rating: expected '7{form.mark}' or "
        f"'{form.separator.join(['7', '5'])}', digits only; correct or remove the line",
        number,
    )


def _check_counts(source: Source, block: _Block, rated: int, announced: int) -> tuple[int, int]:
    """Compare the numbers of ratings with those that the groups announce.

    ``rated`` and ``announced`` are those of the last group of the preceding block; returns those of
    the last group of this one.
    """
    if not len(block.groups):
        return rated + len(block.members), announced
    counts = np.diff(np.concatenate([[0], block.starts, [len(block.members)]]))
    counts[0] += rated
    expected = np.concatenate([[announced], block.announced])
    wrong = np.flatnonzero((expected[:-1] >= 0) & (expected[:-1] != counts[:-1]))
    if len(wrong):
        k = int(wrong[0])
        name = f"group {block.groups[k - 1]}" if k else f"the group before {block.groups[0]}"
        raise source.fault(
            f"{name} announces {expected[k]} ratings, but {counts[k]} follow; "
            "lines are missing or surplus"
        )
    return int(counts[-1]), int(expected[-1])
