"""Messages of a fit: log records, and each warning once per fit."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings

import pytest

from robustmf import RobustMF
from robustmf.baselines import AltGrad
from robustmf.datasets import make_synthetic
from robustmf.exceptions import NotConvergedWarning, RobustMFWarning


@pytest.fixture(scope="module")
def data():
    return make_synthetic(60, rank=2, observed=0.5, random_state=0).train


def test_info_reports_choices_and_their_reasons(data, caplog, tmp_path):
    caplog.set_level(logging.INFO, "robustmf")
    model = RobustMF(2, loss="lsp", random_state=0).fit(data, checkpoint=tmp_path / "c")
    assert all(
        record.levelno == logging.INFO and record.name.startswith("robustmf.")
        for record in caplog.records
    )
    for message in (
        f"60 × 60 with {data.n_entries} entries, rank 2, loss lsp",
        f"solver irls: {model.solver_reason_}",
        "initialized in",
        f"λ {model.reg_:.4g}, θ {model.theta_:.4g}, no biases",
        f"{model.stop_reason_} after {model.n_iter_} iterations",
        f"checkpoint {tmp_path / 'c'}: new",
        f"checkpoint {tmp_path / 'c'}: written",
    ):
        assert message in caplog.text
    caplog.clear()
    RobustMF(2, loss="lsp", random_state=0).fit(data, checkpoint=tmp_path / "c")
    assert "c: resuming" in caplog.text


def test_debug_reports_each_iteration(data, caplog):
    caplog.set_level(logging.DEBUG, "robustmf")
    model = RobustMF(2, loss="lsp", random_state=0).fit(data)
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert len(lines) == model.n_iter_ + 1
    assert lines[-1].startswith(
        f"iteration {model.n_iter_}: objective {model.history_['objective'][-1]:.9g}"
    )


_QUIET = """
import logging, sys
from robustmf import RobustMF
from robustmf.datasets import make_synthetic
logger = logging.getLogger("robustmf")
assert logger.handlers and logger.level == logging.NOTSET
assert not logging.getLogger().handlers
data = make_synthetic(60, rank=2, observed=0.5, random_state=0).train
RobustMF(2, random_state=0).fit(data, checkpoint=sys.argv[1])
"""


def test_nothing_is_printed_by_default(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", _QUIET, tmp_path / "c"], capture_output=True, text=True, check=True
    )
    assert (result.stdout, result.stderr) == ("", "")


@pytest.mark.parametrize(
    "make",
    [
        lambda: RobustMF(2, loss="lsp", n_init=3, init="random", max_iter=2, random_state=0),
        lambda: RobustMF(2, loss="l1", certify=True, max_iter=1, random_state=0),
        lambda: RobustMF(2, solver="mm", loss="lsp", max_iter=1, random_state=0),
        lambda: AltGrad(2, max_iter=1, random_state=0),
    ],
    ids=["n_init", "certify", "mm", "baseline"],
)
def test_each_warning_is_issued_once_per_fit_at_the_line_of_the_caller(make, data):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make().fit(data)
    assert [warning.category for warning in caught] == [NotConvergedWarning]
    assert caught[0].filename == __file__
    assert issubclass(NotConvergedWarning, RobustMFWarning)
