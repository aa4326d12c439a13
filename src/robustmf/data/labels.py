"""Rows and columns of other matrices, matched with those of a fitted one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.factorization import UNKNOWN
from robustmf.data.ids import Side, Vocabulary
from robustmf.data.observed import Observed, read_table
from robustmf.data.table_form import NO_NAMES, ColumnNames, TableForm
from robustmf.data.tables import has_columns
from robustmf.validation import require_indices

Ids = Sequence[Hashable] | None
Indices = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Labels:
    """The ids of a fitted matrix, by which rows and columns of others are matched with it.

    Attributes
    ----------
    shape : (int, int)
        Shape of the fitted matrix.
    row_ids, column_ids : sequence or None
        Identifiers of rows and columns; None where they are numbered.
    form : TableForm or None
        The form of the fitted table; None if it was not a table.
    """

    shape: tuple[int, int]
    row_ids: Ids
    column_ids: Ids
    form: TableForm | None
    _vocabularies: dict[str, Vocabulary] = field(default_factory=dict, repr=False, compare=False)

    def size(self, side: Side) -> int:
        """The number of rows or columns."""
        return self.shape[0 if side == "row" else 1]

    def vocabulary(self, side: Side) -> Vocabulary | None:
        """The indices of row or column ids; None where rows and columns are numbered."""
        ids = self.row_ids if side == "row" else self.column_ids
        if ids is None:
            return None
        if side not in self._vocabularies:
            self._vocabularies[side] = Vocabulary(ids, side)
        return self._vocabularies[side]

    def indices(self, side: Side, given: Any, argument: str) -> Indices:
        """Row or column indices of the ids, or numbers, that a caller gave in ``argument``."""
        lookup = self.vocabulary(side)
        if lookup is not None:
            return lookup.indices(given)
        return require_indices(argument, given, self.size(side))

    def read(self, X: Any, names: ColumnNames = NO_NAMES, *, new: bool = False) -> Any:
        """The entries of a table; anything else as it is.

        A table is long if its columns are named by ``names``, or if the fitted one was long and it
        has the same three columns; otherwise it is wide. ``new`` rows may all be empty.
        """
        if names != NO_NAMES:
            return read_table(X, names)
        of_fit = NO_NAMES if self.form is None else self.form.names
        entries = read_table(X, of_fit if has_columns(X, of_fit) else NO_NAMES, allow_empty=new)
        if not isinstance(entries, Observed) or entries.column_ids is not None:
            return entries
        labels = self._default_labels("column", entries)
        if labels is None or self.column_ids is None:
            return entries
        labelled = copy(entries)
        labelled.column_ids = labels
        return labelled

    def match(self, side: Side, observed: Observed, new_rows: bool = False) -> Indices:
        """The indices of the rows or columns of a matrix; ``UNKNOWN`` for unknown ids.

        Without ids they must be those of the fit, unless they have the default labels of pandas.
        The columns of ``new_rows`` may have any number of rows.
        Where the rows of a fitted table are numbered, the integers that label those of another
        table are these numbers.
        """
        n_known = self.size(side)
        size = observed.shape[0 if side == "row" else 1]
        ids: Ids = observed.row_ids if side == "row" else observed.column_ids
        lookup = self.vocabulary(side)
        if ids is None:
            labels = self._default_labels(side, observed)
            if labels is not None:
                return np.asarray(labels) if lookup is None else lookup.indices(labels)
            if observed.row_ids is None and observed.column_ids is None and not new_rows:
                self.require_shape(observed)
            if size != n_known:
                raise ValueError(
                    f"X must have the {n_known} {side}s of the fit or {side} ids, "
                    f"got {size} {side}s without ids"
                )
            return np.arange(size)
        if lookup is not None:
            return lookup.indices(ids)
        numbers = np.asarray(ids)
        if self.form is None or self.form.is_long or numbers.dtype.kind not in "iu":
            raise ValueError(f"X has {side} ids, but the fit had none; give X by {side} numbers")
        return np.where((numbers >= 0) & (numbers < n_known), numbers, UNKNOWN)

    def require_shape(self, observed: Observed) -> None:
        """Raise unless a matrix without ids has the shape of the fitted one."""
        if observed.shape != self.shape:
            raise ValueError(
                f"X must have the shape of the fitted matrix, {self.shape}, got {observed.shape}"
            )

    def _default_labels(self, side: Side, observed: Observed) -> list[int] | None:
        """The labels 0, 1, … of a table with the default index (or columns) of pandas.

        They are labels where those of the fit are numbers, or where the fit has none; then unknown
        ones are refused. None otherwise: rows and columns without labels are matched by position.
        """
        form = observed.form
        lookup = self.vocabulary(side)
        if form is None or form.is_long or not form.has_index:
            return None
        if lookup is not None and not lookup.has_numbers:
            return None
        labels = list(range(observed.shape[0 if side == "row" else 1]))
        n_known = self.size(side)
        unknown = (
            max(len(labels) - n_known, 0)
            if lookup is None
            else int((lookup.indices(labels) == UNKNOWN).sum())
        )
        if unknown:
            index, method = ("index", "set_index") if side == "row" else ("columns", "set_axis")
            raise ValueError(
                f"the {side}s of X have the default {index} of pandas, 0 … {len(labels) - 1}, and "
                f"{unknown} of these labels are unknown to the fit: give X the labels of the fit "
                f"with {method}, or, to match by position, X.to_numpy() with all {n_known} "
                f"{side}s of the fit"
            )
        return labels
