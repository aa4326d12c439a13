"""Ratings listed group by group (all of a movie, all of a user), streamed: a hundred million in little more than their own room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robustmf.data.ids import Vocabulary
from robustmf.data.observed import Observed
from robustmf.exceptions import DuplicateEntryError, MalformedFileError
from robustmf.io.reading.ratings import require_precision
from robustmf.io.reading.source import Source
from robustmf.kernels.grouped import FINE, NO_GROUP, OUT_OF_BOUNDS, parse_grouped

_BYTES_AT_ONCE = 16 * 2**20


@dataclass(frozen=True)
class GroupedForm:
    """How lines look: ``12:`` and ``345,5,2005-09-06`` (mark ":", separator ","), or ``12|3`` and ``345<tab>90`` (mark "|", tab).

    ``bounds`` are the lowest and highest rating, integers from 0 to 255.
    """

    mark: str
    separator: str
    bounds: tuple[int, int]


@dataclass(frozen=True)
class _Part:
    members: NDArray[np.int32]
    values: NDArray[np.uint8]
    groups: NDArray[np.int64]
    announced: NDArray[np.int64]
    starts: NDArray[np.int64]
    n_lines: int


def read_grouped(sources: Iterable[Source], form: GroupedForm, dtype: str = "float32") -> Observed:
    """Members by groups, e.g. users by movies, with their ids; members are numbered in the order of their ids, groups as they come."""
    require_precision(dtype)
    sources = list(sources)
    parts = [part for source in sources for part in _parts(source, form)]
    if not parts:
        raise ValueError("no file to read from")
    sizes = np.cumsum([0, *(len(part.members) for part in parts)])
    pointers = np.concatenate(
        [
            *(part.starts + before for part, before in zip(parts, sizes[:-1], strict=True)),
            sizes[-1:],
        ]
    )
    groups = np.concatenate([part.groups for part in parts]).tolist()
    members, values = (
        np.concatenate([part.members for part in parts]),
        np.concatenate([part.values for part in parts]),
    )
    parts.clear()
    numbers, vocabulary = Vocabulary.encode(members, "member")
    del members
    try:
        return Observed.from_columns(
            pointers, numbers.astype(np.int32, copy=False), values, (vocabulary.ids, groups), dtype
        )
    except DuplicateEntryError as error:
        where = f"row {error.row!r}, column {error.column!r} (values {error.values[0]!r} and {error.values[1]!r})"
        files = (
            "" if len(sources) == 1 else f", in it or in the {len(sources) - 1} files read with it"
        )
        raise sources[0].fault(
            f"duplicate entry at {where}{files}; remove one of the lines"
        ) from None


def _parts(source: Source, form: GroupedForm) -> Iterator[_Part]:
    """The file piece by piece, each piece whole lines."""
    lines, rated, announced = 0, 0, -1
    begun = any_rated = False
    with source.open() as stream:
        rest = b""
        while True:
            block = stream.read(_BYTES_AT_ONCE)
            text = rest + block if block else rest + b"\n" * bool(rest)
            cut = text.rfind(b"\n") + 1
            text, rest = text[:cut], text[cut:]
            if text:
                part = _parse(source, form, text, lines, begun)
                begun, any_rated = begun or len(part.groups) > 0, any_rated or len(part.members) > 0
                lines += part.n_lines
                rated, announced = _check_counts(source, part, rated, announced)
                yield part
            if not block:
                break
    if not any_rated:
        raise source.fault(
            f"no ratings in it; expected lines like '1{form.mark}', then '{form.separator.join(['7', '5'])}'"
        )
    if announced not in (-1, rated):
        raise source.fault(
            f"its last group announces {announced} ratings, but {rated} follow; the file is cut short"
        )


def _parse(source: Source, form: GroupedForm, text: bytes, lines_before: int, begun: bool) -> _Part:
    room = text.count(b"\n")
    members, values = np.empty(room, np.int32), np.empty(room, np.uint8)
    groups, announced, starts = (
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
    )
    n, k, line, problem = parse_grouped(
        np.frombuffer(text, np.uint8),
        ord(form.mark),
        ord(form.separator),
        *form.bounds,
        begun,
        members,
        values,
        groups,
        announced,
        starts,
    )
    if problem != FINE:
        raise _fault(source, form, text.split(b"\n", line)[line - 1], lines_before + line, problem)
    # copies, so that the room of lines that were none is given back
    return _Part(
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
            f"{shown} is a rating before any line like '1{form.mark}'; the beginning of the file is missing",
            number,
        )
    if problem == OUT_OF_BOUNDS:
        return source.fault(
            f"the rating in {shown} is not within {form.bounds[0]} … {form.bounds[1]}; correct or remove the line",
            number,
        )
    wanted = f"expected '7{form.mark}' or '{form.separator.join(['7', '5'])}', digits only"
    return source.fault(f"{shown} is no rating: {wanted}; correct or remove the line", number)


def _check_counts(source: Source, part: _Part, rated: int, announced: int) -> tuple[int, int]:
    """Groups that announce their number of ratings must have it. Returns what the last group has so far, and announces."""
    if not len(part.groups):
        return rated + len(part.members), announced
    counts = np.diff(np.concatenate([[0], part.starts, [len(part.members)]]))
    counts[0] += rated
    promised = np.concatenate([[announced], part.announced])
    wrong = np.flatnonzero((promised[:-1] >= 0) & (promised[:-1] != counts[:-1]))
    if len(wrong):
        k = int(wrong[0])
        name = f"group {part.groups[k - 1]}" if k else f"the group before {part.groups[0]}"
        raise source.fault(
            f"{name} announces {promised[k]} ratings, but {counts[k]} follow; lines are missing or too many"
        )
    return int(counts[-1]), int(promised[-1])
