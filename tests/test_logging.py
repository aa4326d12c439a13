"""What a fit says: through ``logging``, by warnings of our own once a fit, and nothing else unless asked."""

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


def test_info_tells_what_was_chosen_and_why(data, caplog, tmp_path):
    caplog.set_level(logging.INFO, "robustmf")
    model = RobustMF(2, loss="lsp", random_state=0).fit(data, checkpoint=tmp_path / "c")
    assert all(
        record.levelno == logging.INFO and record.name.startswith("robustmf.")
        for record in caplog.records
    )
    for told in (
        f"60 × 60 with {data.n_entries} entries, rank 2, loss lsp",
        f"solver irls: {model.solver_reason_}",
        "initialized in",
        f"λ {model.reg_:.4g}, θ {model.theta_:.4g}, no biases",
        f"{model.stop_reason_} after {model.n_iter_} iterations",
        f"checkpoint {tmp_path / 'c'}: new",
        f"checkpoint {tmp_path / 'c'}: written",
    ):
        assert told in caplog.text
    caplog.clear()
    RobustMF(2, loss="lsp", random_state=0).fit(data, checkpoint=tmp_path / "c")
    assert "c: resuming" in caplog.text


def test_debug_tells_each_iteration(data, caplog):
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
assert logging.getLogger("robustmf").handlers and logging.getLogger("robustmf").level == logging.NOTSET
assert not logging.getLogger().handlers
RobustMF(2, random_state=0).fit(make_synthetic(60, rank=2, observed=0.5, random_state=0).train, checkpoint=sys.argv[1])
"""


def test_nothing_is_printed_unless_asked(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _QUIET, tmp_path / "c"], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


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
def test_each_warning_comes_once_a_fit_at_the_users_line(make, data):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make().fit(data)
    assert [warning.category for warning in caught] == [NotConvergedWarning]
    assert caught[0].filename == __file__
    assert issubclass(NotConvergedWarning, RobustMFWarning)
