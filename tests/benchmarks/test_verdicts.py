"""Verdicts on printed numbers, bold cells, extrapolated times, curves over seeds."""

from __future__ import annotations

import re

import numpy as np
import pytest

from benchmarks.reproduction import table1, table2, table3
from benchmarks.reproduction.comparison import (
    KINDS,
    RULE,
    RULES,
    Comparison,
    Runs,
    best_of,
    duration,
    extrapolated,
    mean_and_deviation,
    times_faster,
)
from benchmarks.reproduction.content import FIGURE3, FIGURE4
from benchmarks.reproduction.content_ratings import closest_kind, time_on_ratings
from benchmarks.reproduction.curves import first_positive, summarized
from benchmarks.reproduction.drawing import separated, svg, write_html
from benchmarks.reproduction.ratings import NETFLIX_PART, NETFLIX_SHARE
from benchmarks.reproduction.sections import MOST_CURVES, Chart, Section, Series


def record(method, data, seed, status="done", machine="A, 2 cores", **result):
    key = f"x/{method}/{data}/{seed}"
    made = {"key": key, "method": method, "data": data, "seed": seed, "status": status}
    made["machine"] = machine
    return {key: made | ({"result": result} if status == "done" else {"reason": result["reason"]})}


def cells(**errors):
    """Runs of a column "d1" with one error per seed."""
    found = {}
    for method, values in errors.items():
        for seed, value in enumerate(values):
            found |= record(method, "d1", seed, rmse=value, seconds=1.0)
    return Runs(found)


def compared(printed, **options):
    return Comparison(list(printed), ["d1"], printed, lambda r: r["rmse"], "RMSE", **options)


def verdict(ours, value, deviation=0.0, **options):
    printed = {"a": [(value, deviation, 1, 0)]}
    options = {"planned": len(ours)} | options
    return compared(printed, **options).verdict(cells(a=ours), "a", "d1")


def test_within_five_percent_is_reproduced():
    assert verdict([1.049], 1.0) == "reproduced"
    assert verdict([0.951], 1.0) == "reproduced"
    assert verdict([1.051], 1.0) == "not reproduced: 1.051"
    assert verdict([0.949], 1.0) == "lower here: 0.949"


def test_two_joint_deviations_count_up_to_fifteen_percent():
    assert verdict([1.09], 1.0, 0.05) == "reproduced"
    assert verdict([1.11], 1.0, 0.05) == "not reproduced: 1.110"
    assert verdict([1.14], 1.0, 0.5) == "reproduced"
    assert verdict([1.16], 1.0, 0.5) == "not reproduced: 1.160"
    # the deviation over our own seeds is part of the joint one
    assert verdict([1.04, 1.16], 1.0, 0.0) == "reproduced"


def test_a_median_that_would_be_reproduced_is_given():
    assert verdict([1.0, 1.0, 4.0], 1.0) == "not reproduced: 2.000, median 1.000"
    assert verdict([1.5, 2.0, 2.5], 1.0) == "not reproduced: 2.000"


def test_below_the_oracle_is_impossible_whatever_we_find():
    floors = {"d1": 0.4}
    assert verdict([0.2], 0.2, floors=floors) == "impossible: printed 0.200, oracle 0.400"
    assert verdict([0.5], 0.5, floors=floors) == "reproduced"
    assert (
        verdict([], 0.2, floors=floors, time_at=lambda method, data: 10800.0)
        == "impossible: printed 0.200, oracle 0.400; out of reach: about 3.0 h per seed"
    )


def test_a_slip_is_corrected_before_it_is_judged():
    options = {"floors": {"d1": 0.07}, "corrections": {"d1": 0.1}}
    assert verdict([0.089], 0.45, **options) == "impossible: printed 0.045, oracle 0.070"
    table = compared({"a": [(0.45, 0.006, 1, 0)]}, **options).table(cells(a=[0.089]))
    assert table.rows[0][2].text == "0.450±0.006 (stands for 0.045)"
    # Table 1 against Table 2, where the same method has 0.047
    assert 0.45 * table1.CORRECTIONS["m = 1000"] == pytest.approx(0.045)
    assert table1.PRINTED["LSP, APG"][2][0] == 0.45
    assert table2.PRINTED["RMFNL LSP"][2][0] == 0.047


def test_a_choice_made_for_closeness_is_named():
    assert (
        verdict([1.0], 1.0, closest="interpretation") == "reproduced in the closest interpretation"
    )
    assert verdict([2.0], 1.0, closest="interpretation") == "not reproduced: 2.000"


def test_the_closest_interpretation_is_that_of_all_printed_numbers():
    """Errors on clean values that are the printed ones; the other errors are not."""
    found = {}
    for method, numbers in table3.PRINTED.items():
        printed = numbers[0][0]
        errors = {"attacked": 0.9 * printed, "clean": printed, "spared": 1.1 * printed}
        found |= record(method, "MovieLens-100K", 0, rmse=errors, scale=1.3)
    assert closest_kind(Runs(found)) == ("clean", False)
    stars = {
        key: one | {"result": one["result"] | {"scale": 1 / 0.9}} for key, one in found.items()
    }
    for one in stars.values():
        one["result"]["rmse"] = one["result"]["rmse"] | {"clean": 5.0}
    assert closest_kind(Runs(stars)) == ("attacked", True)


def test_fewer_seeds_than_planned_are_named():
    assert verdict([1.0], 1.0, planned=5) == "reproduced (1 seed)"
    assert verdict([2.0, 2.0], 1.0, planned=5) == "not reproduced: 2.000 (2 seeds)"


def test_empty_cells_say_why():
    printed = {"a": [(1.0, 0.0, 1, 0)], "b": [None]}
    missing = Runs(record("a", "d1", 0, "no data", reason="d1 was not found"))
    assert compared(printed).verdict(missing, "a", "d1") == "data not found"
    assert compared(printed).verdict(cells(), "a", "d1") == "not run"
    assert compared(printed).verdict(cells(), "b", "d1") == ""
    assert compared(printed, absent=["d1"]).verdict(cells(), "a", "d1") == "data not found"
    late = compared(printed, time_at=lambda method, data: RULES.reach)
    assert late.verdict(cells(), "a", "d1") == "out of reach: about 60 min per seed"
    soon = compared(printed, time_at=lambda method, data: 47.0)
    assert soon.verdict(cells(), "a", "d1") == "not run: about 47 s per seed"


def test_reasons_are_given_where_something_differs_and_counted():
    printed = {name: [(1.0, 0.0, 1, 0)] for name in ("same", "higher", "lower", "absent")}
    reasons = dict.fromkeys(printed, "because") | {"lower": "therefore"}
    one = compared(printed, planned=1, reasons=reasons)
    runs = cells(same=[1.0], higher=[2.0], lower=[0.5])
    table = one.verdicts(runs)
    assert {row[0].text: row[1].text for row in table.rows} == {
        "same": "reproduced",
        "higher": "not reproduced: 2.000",
        "lower": "lower here: 0.500",
        "absent": "not run",
    }
    assert table.note == "*higher:* because\n\n*lower:* therefore"
    both = compared(printed, planned=1, reasons=dict.fromkeys(printed, "because"))
    assert both.verdicts(runs).note == "*higher; lower:* because"
    counts = one.counts(runs)
    assert counts == dict.fromkeys(KINDS, 0) | {
        "reproduced": 1,
        "not reproduced": 1,
        "lower here": 1,
        "not run": 1,
    }


def test_the_written_rule_has_the_numbers_of_the_code():
    assert f"at most {RULES.close:.0%} of the printed number" in " ".join(RULE.split())
    assert f"no more than {RULES.far:.0%} of the printed number" in " ".join(RULE.split())
    assert f"{RULES.reach / 60:.0f} CPU minutes per seed or more" in " ".join(RULE.split())
    for kind in KINDS:
        assert f"*{kind}*" in RULE


def test_best_and_comparable_methods():
    found = {
        "good": {0: 1.0, 1: 1.1, 2: 0.9},
        "similar": {0: 1.05, 1: 1.0, 2: 0.95},
        "worse": {0: 2.0, 1: 2.1, 2: 1.9},
        "dispersed": {0: 0.9, 1: 30.0, 2: 0.9},
        "empty": {},
    }
    assert best_of(found) == {"good", "similar"}
    assert best_of({"empty": {}}) == set()


def test_cells_with_fewer_seeds_do_not_compete():
    found = {
        "good": {0: 1.0, 1: 1.1, 2: 0.9},
        "one lucky seed": {0: 0.1},
        "other seeds": {3: 0.1, 4: 0.1, 5: 0.1},
    }
    assert best_of(found) == {"good"}


def test_dispersed_seeds_are_listed():
    assert mean_and_deviation([0.1, 0.12, 0.11], 2) == "0.11±0.01"
    assert mean_and_deviation([0.1, 2.75, 0.1], 2) == "0.10, 2.75, 0.10"
    assert mean_and_deviation([0.1], 3) == "0.100"
    assert mean_and_deviation([], 3) == "—"


def test_times_are_extrapolated_by_the_power_of_the_size():
    runs = Runs(
        record("a", "m = 250", 0, rmse=1.0, seconds=10.0)
        | record("a", "m = 500", 0, rmse=1.0, seconds=40.0)
        | record("b", "m = 250", 0, rmse=1.0, seconds=1.0)
    )
    assert extrapolated(runs, "a", 1000, (250, 500, 1000)) == pytest.approx(160.0)
    assert extrapolated(runs, "b", 500, (250, 500, 1000)) == pytest.approx(8.0)
    assert extrapolated(runs, "c", 500, (250, 500, 1000)) is None
    assert [duration(s) for s in (35, 720, 12240)] == ["35 s", "12 min", "3.4 h"]


def test_times_are_compared_on_the_same_seeds():
    runs = Runs(
        record("slow", "d1", 0, rmse=1.0, seconds=8.0)
        | record("fast", "d1", 0, rmse=1.0, seconds=2.0)
        | record("fast", "d1", 1, rmse=1.0, seconds=100.0)
    )
    assert times_faster(runs, "slow", "fast", "d1") == pytest.approx(4.0)
    assert times_faster(runs, "none", "fast", "d1") is None


def test_times_are_compared_on_the_same_machine():
    """A cell without a run on the machine of the others is marked; its errors count too."""
    runs = Runs(
        record("slow", "d1", 0, rmse=1.0, seconds=8.0)
        | record("slow", "d1", 1, rmse=3.0, seconds=1000.0, machine="B, 16 cores")
        | record("fast", "d1", 0, rmse=1.0, seconds=2.0)
        | record("fast", "d1", 1, rmse=1.0, seconds=4.0)
        | record("there", "d1", 0, rmse=1.0, seconds=5.0, machine="B, 16 cores")
    )
    assert runs.seconds("slow", "d1") == {0: 8.0}
    assert times_faster(runs, "slow", "fast", "d1") == pytest.approx(4.0)
    assert times_faster(runs, "there", "fast", "d1") is None
    printed = {name: [(1.0, 0.0, 1, 0)] for name in ("slow", "fast", "there")}
    table = compared(printed, planned=1).table(runs)
    assert [[row[1].text, row[3].text] for row in table.rows] == [
        ["1.000, 3.000", "8.00"],
        ["1.000±0.000", "3.00±1.41"],
        ["1.000", "5.00 †"],
    ]
    assert table.note.endswith("CPU seconds, † those of another machine.")
    here = compared({"fast": printed["fast"]}).table(runs)
    assert here.note.endswith("CPU seconds.")


def test_times_on_ratings_are_extrapolated_by_their_number():
    class Made:
        """Records: sizes of two sets, one run with five values of λ and one without."""

        def latest(self, name):
            return {
                "statistics": record("sizes", "MovieLens-1M", 0, entries=10**6)
                | record("sizes", "Netflix", 0, entries=10**8),
                "table3": record("a", "MovieLens-1M", 0, seconds=2.0, tried=dict.fromkeys("12345"))
                | record("b", "MovieLens-1M", 0, seconds=2.0, tried={}),
                "larger": record("b", NETFLIX_PART, 0, seconds=1.0, tried={}),
            }[name]

    time_at = time_on_ratings(Made())
    assert time_at("a", "Netflix") == pytest.approx(2 * 5 * 100)
    assert time_at("b", "Netflix") == pytest.approx(1 / NETFLIX_SHARE)
    assert time_at("a", "Yahoo") is None
    assert time_at("c", "Netflix") is None


def test_a_curve_is_the_median_of_step_functions():
    curves = [
        {"seconds": [1.0, 10.0], "value": [8.0, 2.0]},
        {"seconds": [1.0, 10.0], "value": [6.0, 3.0]},
        {"seconds": [0.0, 2.0, 100.0], "value": [9.0, 4.0, 1.0]},
    ]
    found = summarized("a", curves, "seconds", "value")
    assert found is not None
    assert (found.x[0], found.x[-1]) == (2.0, 10.0)
    assert (found.y[0], found.low[0], found.high[0]) == (6.0, 4.0, 8.0)
    assert (found.y[-1], found.low[-1], found.high[-1]) == (3.0, 2.0, 4.0)
    assert summarized("a", [{"seconds": [0.0], "value": [1.0]}], "seconds", "value") is None
    single = summarized("a", curves[:1], "seconds", "value")
    assert single.low is None
    assert set(single.y) == {8.0, 2.0}  # a step, not a line between two points


def test_a_curve_begins_with_the_zero_matrix():
    """It is drawn from the left of the panel, and drops where the initialization ends."""
    curves = [
        {"seconds": [0.0, 1.0, 1.1], "value": [2.0, 0.2, 0.1]},
        {"seconds": [0.0, 2.0, 2.2], "value": [2.0, 0.3, 0.2]},
    ]
    assert first_positive(curves, "seconds") == 1.0
    assert first_positive([], "seconds") == 0.0
    found = summarized("a", curves, "seconds", "value", left=0.01)
    assert (found.x[0], found.y[0]) == (0.01, 2.0)
    # of two seeds the slower one decides where the curve ends, so that both have ended
    assert (found.x[-1], found.y[-1]) == (2.2, 0.15)
    between = [y for x, y in zip(found.x, found.low, strict=True) if 1.2 < x < 1.9]
    assert set(between) == {0.1}


def test_labels_are_moved_apart():
    placed = separated(np.array([0.1, 0.1, 0.98, 1.0]), 0.1)
    assert np.diff(placed).min() >= 0.1 - 1e-12
    assert placed[0] >= 0
    assert placed[-1] <= 1


def test_a_page_keeps_the_colours_of_labels_and_powers_of_ten(tmp_path):
    """The page sets the colour and the font of all texts, but not of the parts of a text."""
    series = [Series("ours", [0.01, 10.0], [1.0, 1e-4], style=1)]
    chart = Chart("x", "caption", "seconds", "error", series, True, True)
    write_html([Section("s", "Title", "", [chart])], tmp_path / "page.html", "Page", "")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert re.search(r'<text [^>]*><tspan fill="#d55e00">ours</tspan></text>', text)
    ticks = re.findall(r">(10[⁻⁰¹²³⁴]+)</text>", text)
    assert {"10⁻²", "10⁰", "10¹", "10⁻⁴"} <= set(ticks)


def test_figures_have_few_curves_with_labels():
    assert "RobustMF" in FIGURE3
    assert "RobustMF" in FIGURE4
    assert max(len(FIGURE3), len(FIGURE4)) <= MOST_CURVES
    assert FIGURE3.index("RobustMF") == FIGURE4.index("RobustMF")  # the same colour
    series = [
        Series(f"curve {k}", [1.0, 2.0], [1.0 + k, 2.0 + k], style=k) for k in range(MOST_CURVES)
    ]
    drawn = svg(Chart("x", "caption", "x", "y", series, True, True))
    for one in series:
        assert one.name in drawn
    strokes = set(re.findall(r"stroke: (#[0-9a-f]{6}); stroke-width: 1\.8", drawn))
    dashes = set(re.findall(r"stroke-dasharray: ([\d.,]+);[^\"]*stroke-width: 1\.8", drawn))
    assert len(strokes) == MOST_CURVES
    assert len(dashes) == MOST_CURVES - 1  # and one solid line
    with pytest.raises(ValueError, match="more than 7"):
        Chart("x", "", "", "", [*series, series[0]])
