"""Progress bars: estimates of the time left, phases, notebooks."""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from robustmf import RobustMF, phases
from robustmf.selection import RobustMFCV
from robustmf.solvers import progress
from robustmf.solvers.base import Snapshot


def snapshot(iteration, objective, **details):
    return Snapshot(iteration, objective, 0.0, (np.zeros((1, 1)), np.zeros((1, 1))), details)


@pytest.fixture
def line(monkeypatch):
    """The text of a bar, as a terminal of 150 columns shows it."""
    monkeypatch.setattr(progress, "Console", lambda **_: Console(file=io.StringIO(), width=150))

    def text(bar):
        console = Console(width=150, file=io.StringIO(), color_system=None)
        console.print(bar._bar.get_renderable())
        return console.file.getvalue()

    return text


@pytest.mark.parametrize("rate", [0.5, 0.8, 0.95])
def test_geometric_convergence_is_predicted(rate):
    tol = 1e-8
    estimate = progress.IterationEstimate(10_000, tol)
    objectives = [100 + rate**k for k in range(500)]
    decreases = -np.diff(objectives) / objectives[1:]
    end = int(np.argmax(decreases < tol)) + 1
    for k, objective in enumerate(objectives[:end]):
        left = estimate.left(k, objective)
        if k < 3:
            assert left is None
        else:
            assert abs(left - (end - k)) <= 2


def test_without_convergence_the_limit_is_expected():
    estimate = progress.IterationEstimate(100, 1e-6)
    found = [estimate.left(k, 1000.0 - k) for k in range(10)]
    assert found[3:] == [100 - k for k in range(3, 10)]
    assert estimate.left(10, 2000.0) == 90  # an objective that rises is not informative


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.1, "1 s"),
        (4.4, "4 s"),
        (33, "35 s"),
        (80, "1 min 20 s"),
        (1234, "20 min"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations_are_rounded(seconds, text):
    assert progress.duration(seconds) == text


def test_phases_are_shown_with_the_time_left_where_their_length_is_known(line, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: clock[0])
    bar = progress.ProgressBar("Fit", 100, 1e-6)
    with bar:
        phases.begin("annealing", 40)
        clock[0] = 10.0
        phases.step(10)
        assert "Fit: annealing" in line(bar)
        assert "10/40" in line(bar)
        assert "about 30 s left in this phase" in line(bar)
        phases.begin("rank")
        phases.step(3, "rank 5")
        assert "Fit: rank" in line(bar)
        assert "rank 5, step 3" in line(bar)
        assert "left" not in line(bar)
    phases.begin("after the end")
    assert "after" not in line(bar)


def test_the_time_left_in_a_phase_of_limited_length_is_a_bound(line, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: clock[0])
    with progress.PhaseBar("Fit", "reading") as bar:
        assert "Fit: reading" in line(bar)
        phases.begin("rank", 40, at_most=True)
        clock[0] = 10.0
        phases.step(10, "rank 5")
        assert "10/40  rank 5" in line(bar)
        assert "at most 30 s left in this phase" in line(bar)
        phases.begin("noise", 20)
        phases.step(5)
        assert "at most" not in line(bar)


def test_iterations_are_shown_with_an_estimate(line, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: clock[0])
    bar = progress.ProgressBar("Fit", 1000, 2.0**-20)
    with bar:
        for k in range(11):
            clock[0] = 2.0 * k
            bar(snapshot(k, 1 + 0.5**k, validation=0.25))
        assert "Fit: iterations" in line(bar)
        assert "10  objective 1.00098" in line(bar)
        assert "validation error 0.25" in line(bar)
        assert "about 20 s left" in line(bar)


def test_phases_without_a_display_and_hidden_ones():
    phases.begin("nothing")
    phases.step(1)
    seen = []

    class Display:
        def begin(self, name, steps, at_most):
            seen.append(name)

        def step(self, done, detail):
            seen.append(done)

    with phases.shown_by(Display()):
        phases.begin("seen")
        with phases.shown_by(None):
            phases.begin("hidden")
        phases.step(2)
    phases.step(3)
    assert seen == ["seen", 2]


def small_table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 20)) + 0.1 * rng.normal(size=(60, 20))
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


def test_a_fit_reports_its_phases():
    names = []

    class Display:
        def begin(self, name, steps, at_most):
            names.append(name)

        def step(self, done, detail):
            pass

    with phases.shown_by(Display()):
        RobustMF(random_state=0).fit(small_table())
    assert names[:2] == ["initialization, annealing", "initialization, rank and noise"]


def test_the_search_for_rank_and_noise_keeps_to_the_limit_that_it_reports():
    reports = []

    class Display:
        def begin(self, name, steps, at_most):
            reports.append((steps, at_most, []))

        def step(self, done, detail):
            reports[-1][2].append(done)

    with phases.shown_by(Display()):
        RobustMF(random_state=0).fit(small_table())
    assert len(reports) >= 2
    for most, at_most, steps in reports:
        assert at_most
        assert max(steps) <= most


def test_an_audit_reports_its_phases():
    seen = []

    class Display:
        def begin(self, name, steps, at_most):
            seen.append((name, steps, []))

        def step(self, done, detail):
            seen[-1][2].append(done)

    model = RobustMF(2, random_state=0).fit(small_table())
    with phases.shown_by(Display()):
        model.audit()
    names = [name for name, _, _ in seen]
    assert names == ["audit, noise", "audit, entries", "audit, rows", "audit, columns"]
    for _, most, steps in seen[2:]:
        assert steps == list(range(1, most + 1))


class Handle:
    def __init__(self):
        self.texts = []

    def update(self, data, raw):
        assert raw
        self.texts.append(data["text/plain"])


def test_in_a_notebook_the_line_is_an_output_of_the_cell(monkeypatch, capsys):
    handle = Handle()
    monkeypatch.setattr(progress, "_notebook_handle", lambda: handle)
    monkeypatch.setattr(progress, "OPTIONS", replace(progress.OPTIONS, interval=0.0))
    model = RobustMF(2, random_state=0, verbose=1).fit(small_table())
    assert "reading" in handle.texts[0]
    assert any("initialization, annealing" in text for text in handle.texts)
    assert "iterations" in handle.texts[-1]
    assert "left" not in handle.texts[-1]
    assert "\x1b" not in "".join(handle.texts)
    assert capsys.readouterr().err.startswith("RobustMF: rank 2")  # nothing but the summary
    assert model.rank_ == 2
    handle.texts.clear()
    found = model.audit()
    assert "RobustMF: audit" in handle.texts[0]
    assert "audit, columns" in handle.texts[-1]
    assert "32/32" in handle.texts[-1]
    assert found == model.set_params(verbose=0).audit()


def test_a_search_shows_one_bar_for_all_fits_and_one_for_the_best(capsys):
    given = {"rank": [1, 2], "cv": 2, "estimator": RobustMF(random_state=0), "random_state": 0}
    search = RobustMFCV(**given, verbose=1).fit(small_table())
    shown = capsys.readouterr().err
    assert shown.count("RobustMFCV: 4 fits") == 1
    assert "4/4" in shown
    assert shown.count("RobustMF rank 2") == 1
    silent = RobustMFCV(**given).fit(small_table())
    assert capsys.readouterr().err == ""
    assert silent.best_score_ == search.best_score_


def test_the_time_left_of_similar_computations(line, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: clock[0])
    with progress.WorkBar("Search", "fits", 10) as bar:
        clock[0] = 12.0
        bar.advance(3)
        assert "3/10" in line(bar)
        assert "about 30 s left" in line(bar)
        bar.advance(7)
        assert "left" not in line(bar)
