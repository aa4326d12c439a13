"""What a fitted model looks like from outside: a file, a page, a picture in a notebook."""

from __future__ import annotations

import os
from pathlib import Path

from robustmf.exceptions import NotSavableError
from robustmf.io.model_file import Saved, write
from robustmf.outliers.detection import Detection
from robustmf.summary import facts_html

#: The module of the estimators: a class from elsewhere is code, which no file of plain data can hold.
_OWN = "robustmf.estimator"


class Published(Detection):
    """Methods that show or keep a fitted model; see :class:`robustmf.RobustMF`."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file of plain data, for :func:`robustmf.load`; an older file is replaced all at once or not at all.

        Ids may be int, float, str, bool, bytes, tuple, date, datetime, timedelta, UUID, Decimal or NumPy numbers and dates. Code cannot
        be saved: for a loss of your own or callbacks this raises :class:`~robustmf.exceptions.NotSavableError`.
        """
        self._require_factors()
        if type(self).__module__ != _OWN:
            raise NotSavableError(
                f"cannot save a {type(self).__qualname__}: a class of your own is code; use pickle or joblib for it"
            )
        parameters = self.get_params(deep=False)
        kept = {
            name: value
            for name, value in vars(self).items()
            if name not in parameters and name != "components_"
        }
        write(
            path, Saved(type(self).__name__, parameters, kept | {"entries_": dict(self.entries_)})
        )

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        title: str = "Robust matrix factorization",
        tracks: bool = False,
        at_most: float = 0.01,
    ) -> Path:
        """Write a page about the fit: one HTML file that opens off line. Needs Plotly, the extra "plot".

        It shows the most suspicious entries, rows and columns (scores up to ``at_most``), residuals and the loss's weights, convergence,
        a map of the factors, and what is needed to repeat the fit.

        Parameters
        ----------
        tracks : bool
            The rows are x and y of points in frames, in turns, and the rank is 4: show the points in space.
        """
        from robustmf.report import fit_page, fitted  # noqa: PLC0415 - drawn by what stands above, only when asked for

        where = Path(path)
        fit_page.write(fitted.fit_record(self, tracks=tracks, at_most=at_most), where, title)
        return where

    def _html_repr(self) -> str:
        """scikit-learn's diagram for notebooks, and below it what the fit found."""
        from sklearn.utils import estimator_html_repr  # noqa: PLC0415 - only notebooks ask

        return str(estimator_html_repr(self)) + (
            facts_html(self) if hasattr(self, "row_factors_") else ""
        )
