"""Wide files on the command line: a line per row, a field per column."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from robustmf import RobustMF, load
from robustmf.cli import app
from robustmf.cli.fit_options import ModelOptions, make_model
from robustmf.data.statistics import suspected_codes
from robustmf.io import MalformedFileError, WideLayout, guess_layout, read_ratings

MISSING = (4, 2)
BAD = (9, 3)


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "120"})


@pytest.fixture(scope="module")
def truth():
    return np.outer(np.linspace(1, 3, 40), np.linspace(2, 9, 6))


@pytest.fixture
def frame(truth):
    cells = (truth + 0.01 * np.random.default_rng(0).standard_normal(truth.shape)).round(4)
    cells[MISSING] = np.nan
    cells[BAD] = 77.0
    hours = pd.date_range("2026-01-01", periods=40, freq="h").strftime("%Y-%m-%d %H:%M")
    return pd.DataFrame(cells, columns=[f"s{k}" for k in range(6)]).assign(time=hours)[
        ["time", *(f"s{k}" for k in range(6))]
    ]


@pytest.fixture
def path(frame, tmp_path):
    file = tmp_path / "sensors.csv"
    frame.to_csv(file, index=False)
    return file


def test_a_wide_file_is_recognized_and_described(path, frame):
    layout = guess_layout(path)
    assert isinstance(layout, WideLayout)
    assert str(layout) == "comma-separated, header; wide, row=time (text)"
    entries = read_ratings(path)
    assert entries.row_ids == frame["time"].tolist()
    assert entries.column_ids == [f"s{k}" for k in range(6)]
    np.testing.assert_array_equal(entries.to_dense(), frame.drop(columns="time"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("time,s1,s2\n0,1.5,2\n1,2.5,3\n", (4, [0, 1], ["s1", "s2"])),
        (",a,b,c\nx,1,2,\ny,3,NA,4\n", (4, ["x", "y"], ["a", "b", "c"])),
        (",1,2\n7,0.5,1\n8,,2\n", (3, [7, 8], ["1", "2"])),
        ("0.5;1.5;;4\n1;2;3;4.5\n", (7, None, None)),
        ("1 2 3 4 5 6\n7 8 9 1 2 99\n", (12, None, None)),
    ],
    ids=["time", "index of pandas", "numbers in the header", "no header", "many fields"],
)
def test_guessed_wide_files(tmp_path, text, expected):
    path = tmp_path / "table.csv"
    path.write_text(text)
    entries = read_ratings(path)
    assert (entries.n_entries, entries.row_ids, entries.column_ids) == expected


def test_lines_may_be_longer_than_a_block_of_the_parser(tmp_path):
    path = tmp_path / "wide.csv"
    names = [f"c{k:0500}" for k in range(2200)]
    values = [f"{k}.{0:0500}" for k in range(2200)]
    path.write_text(f"id,{','.join(names)}\nu,{','.join(values)}\n")
    entries = read_ratings(path)
    assert list(entries.column_ids) == names
    np.testing.assert_array_equal(entries.rows.values, np.arange(2200))


@pytest.mark.parametrize(
    "text",
    [
        "user,item,rating\n1,10,4.5\n2,11,3\n",
        "1\t10\t4\t881250949\n2\t11\t3\t881250950\n",
        "who,what,stars\nann,Dune,4\n",
        "user,item,rating,a,b,c,d\n1,10,4.5,1,2,3,4\n",
    ],
    ids=["names", "MovieLens", "text", "more columns"],
)
def test_long_files_are_not_taken_for_wide_ones(tmp_path, text):
    path = tmp_path / "table.csv"
    path.write_text(text)
    assert not isinstance(guess_layout(path), WideLayout)


def test_codes_of_missing_values_and_given_layouts(tmp_path):
    path = tmp_path / "jester.csv"
    path.write_text("1,2,99\n99,3,4\n5,99.0,6\n")
    entries = read_ratings(path, wide=True, missing=[99])
    assert entries.n_entries == 6
    assert "wide, rows numbered from 0, 99 is missing" in str(
        guess_layout(path, wide=True, missing=[99])
    )
    assert str(guess_layout(path, wide=False, missing=[99])).endswith("field 3, 99 is missing")
    with pytest.raises(ValueError, match="col and value must not be given for a wide file"):
        guess_layout(path, wide=True, col=1)
    assert read_ratings(path, wide=True, row=0).row_ids == [1, 99, 5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,a,b\nx,1,2\ny,1,bad\n", "line 3: value 'bad' is not a finite number"),
        ("time,a,b\nx,1.5,2\nx,1,3\n", "row ids of a wide table must be distinct, got 'x' 2 times"),
        ("time,a,a\nx,1.5,2\ny,1,3\n", "column ids of a wide table must be distinct, got 'a'"),
        ("time,a,b\nx,1.5,2\ny,1\n", "line 3: expected 3 fields"),
        ("time,a,b\nx,,\n", "at least one observed entry"),
    ],
    ids=["text", "rows", "columns", "fields", "empty"],
)
def test_errors_name_the_file_and_the_line(tmp_path, text, message):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(MalformedFileError, match=message) as caught:
        read_ratings(path, wide=True)
    assert str(path) in str(caught.value)


def test_audit_of_a_wide_file(path, frame):
    result = run("audit", path, "--rank", 1, "--no-bias", "--json")
    assert result.exit_code == 0, result.output
    assert "wide, row=time (text)" in result.stderr
    assert "40 rows x 6 columns, 239 entries (0.417 % missing)" in result.stderr
    assert "--long if a line is one entry" in result.stderr
    worst = json.loads(result.stdout)["entries"][0]
    assert (worst["row"], worst["column"]) == (frame["time"][9], "s3")
    named = run("audit", path, "--wide", "--rank", 1, "--no-bias")
    assert named.exit_code == 0
    assert "--long" not in named.stderr


@pytest.mark.parametrize("is_long", [False, True], ids=["wide", "long"])
@pytest.mark.parametrize("replace", [False, True])
def test_clean_changes_the_entries_that_python_changes(tmp_path, is_long, replace):
    rng = np.random.default_rng(0)
    cells = np.outer(np.linspace(1, 3, 50), np.linspace(2, 9, 12))
    cells += 0.2 * rng.standard_t(3, cells.shape)
    cells[[4, 17], [3, 8]] = 77.0
    table = pd.DataFrame(cells.round(4), columns=[f"s{k}" for k in range(12)])
    table.insert(0, "time", [f"t{k:02}" for k in range(50)])
    if is_long:
        table = table.melt("time", var_name="sensor", value_name="reading")
        table = table.sample(frac=0.8, random_state=0, ignore_index=True)
    names = {"row": "time", "col": "sensor", "value": "reading"} if is_long else {}
    path = tmp_path / "in.csv"
    out = tmp_path / "out.csv"
    table.to_csv(path, index=False)
    given = [part for name, column in names.items() for part in (f"--{name}", column)]
    options = ("--replace",) if replace else ()
    result = run("clean", path, "-o", out, "--at-most", 0.01, *given, *options)
    assert result.exit_code == 0, result.output
    model = RobustMF(random_state=0).fit(table, **names)
    cleaned, mask = model.clean(table, at_most=0.01, **({"replace": True} if replace else {}))
    assert 2 <= np.asarray(mask).sum() < 40
    if is_long and not replace:
        cleaned = cleaned[~mask].reset_index(drop=True)
    pd.testing.assert_frame_equal(pd.read_csv(out), cleaned, rtol=1e-6)


def test_the_model_of_the_command_line_is_that_of_python():
    ours = make_model("auto", None, ModelOptions()).get_params()
    assert ours == RobustMF(random_state=0).get_params()


def test_a_model_of_a_wide_file_answers_by_label(path, tmp_path, truth):
    assert run("fit", path, "--rank", 1, "--no-bias", "-o", tmp_path / "m.rmf").exit_code == 0
    model = load(tmp_path / "m.rmf")
    assert model.predict("2026-01-01 04:00", "s2") == pytest.approx(truth[MISSING], abs=0.05)


@pytest.mark.parametrize("options", [(), ("--replace",), ("--replace", "--fill")])
def test_clean_of_a_wide_file(path, frame, truth, options, tmp_path):
    out = tmp_path / "out.csv"
    result = run("clean", path, "-o", out, "--rank", 1, "--no-bias", "--at-most", 1e-6, *options)
    assert result.exit_code == 0, result.output
    word = "replaced" if options else "removed"
    assert f"1 of 239 entries {word} (0.42 %)" in result.stderr
    before, after = (one.read_text().splitlines() for one in (path, out))
    changed = {k for k, (one, other) in enumerate(zip(before, after, strict=True)) if one != other}
    assert changed == ({10, 5} if "--fill" in options else {10})
    cleaned = pd.read_csv(out)
    value = cleaned.loc[9, "s3"]
    assert value == pytest.approx(truth[BAD], abs=0.05) if options else np.isnan(value)
    gap = cleaned.loc[4, "s2"]
    assert gap == pytest.approx(truth[MISSING], abs=0.05) if "--fill" in options else np.isnan(gap)
    cleaned.loc[9, "s3"] = 77.0
    cleaned.loc[4, "s2"] = np.nan
    pd.testing.assert_frame_equal(cleaned, frame, check_dtype=False)


def test_clean_replaces_values_of_a_long_file(path, frame, truth, tmp_path):
    long = frame.melt("time", var_name="sensor", value_name="value").dropna()
    file = tmp_path / "long.csv"
    long.to_csv(file, index=False, quoting=csv.QUOTE_NONNUMERIC)
    out = tmp_path / "out.csv"
    names = ("--row", "time", "--col", "sensor", "--value", "value")
    options = ("--rank", 1, "--no-bias", "--at-most", 1e-6)
    assert run("clean", file, "-o", out, "--replace", *names, *options).exit_code == 0
    cleaned = pd.read_csv(out).set_index(["time", "sensor"])["value"]
    before = long.set_index(["time", "sensor"])["value"]
    changed = cleaned.ne(before)
    assert changed[changed].index.tolist() == [(frame["time"][9], "s3")]
    assert cleaned[changed].item() == pytest.approx(truth[BAD], abs=0.05)
    refused = run("clean", file, "-o", out, "--fill", *names)
    assert refused.exit_code == 2
    assert "needs a wide file" in refused.stderr


def test_wide_parquet(frame, truth, tmp_path):
    path = tmp_path / "sensors.parquet"
    out = tmp_path / "out.parquet"
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)
    options = ("--rank", 1, "--no-bias", "--at-most", 1e-6)
    result = run("clean", path, "-o", out, "--replace", "--fill", *options)
    assert result.exit_code == 0, result.output
    assert "Parquet; wide" in result.stderr
    cleaned = pq.read_table(out).to_pandas()
    assert cleaned.loc[9, "s3"] == pytest.approx(truth[BAD], abs=0.05)
    assert cleaned.loc[4, "s2"] == pytest.approx(truth[MISSING], abs=0.05)
    assert cleaned.columns.tolist() == frame.columns.tolist()


def test_missing_codes_on_the_command_line(path, frame, tmp_path):
    coded = tmp_path / "coded.csv"
    frame.fillna(-99).to_csv(coded, index=False)
    result = run("audit", coded, "--missing", "-99,99", "--rank", 1, "--no-bias", "--json")
    assert result.exit_code == 0, result.output
    assert "239 entries" in result.stderr
    refused = run("audit", coded, "--missing", "none")
    assert refused.exit_code == 2
    assert "must be numbers separated by commas" in refused.stderr


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        ([*range(20), *[-999] * 10], [-999]),
        ([*range(20), *[-999] * 9], []),
        ([-10.0, 3.0, 10.0, *[99.0] * 12], [99]),
        ([*[-1] * 30, *[0] * 30, *[1] * 30], []),
        ([1.0, 2.0, 3.0, 4.0, *[5.0] * 50], []),
        ([*[-99] * 10, *range(10), *[99] * 10], []),
        ([7.0] * 30, []),
        # a table with bad entries, and Jester's with its column of counts
        ([*np.linspace(15, 25, 500), *np.linspace(30, 40, 9), *[99.0] * 60], [99]),
        ([*np.linspace(-10, 10, 600), *range(20, 80, 6), *[99.0] * 400], [99]),
        # the largest of values with a long tail, and where values saturate
        ([*np.minimum(np.random.default_rng(0).zipf(1.8, 10_000), 100)], []),
        ([*np.minimum(np.random.default_rng(0).normal(20, 3, 5_000), 25)], []),
    ],
)
def test_codes_for_missing_values_are_suspected(values, codes):
    assert suspected_codes(np.array(values)) == codes


def test_a_suspected_code_is_reported_with_the_option(frame, tmp_path):
    path = tmp_path / "coded.csv"
    cells = frame.mask(np.random.default_rng(1).random(frame.shape) < 0.1, -999.0)
    cells["time"] = frame["time"]
    cells.to_csv(path, index=False)
    result = run("audit", path, "--rank", 1, "--no-bias")
    assert result.exit_code == 0
    assert "far from all other values: if it stands for missing values, give --missing -999" in (
        result.stderr
    )
    assert "far from" not in run("audit", path, "--rank", 1, "--no-bias", "--missing", -999).stderr


YEARS = [str(year) for year in range(1990, 2002)]


@pytest.mark.parametrize(
    ("header", "data"),
    [
        ("station," + ",".join(YEARS), "Bern,{}"),
        ("time," + ",".join(map(str, range(1, 13))), "{k},{}"),
        ("city," + ",".join(YEARS), "Bern{k},{}"),
        (",".join(map(str, range(12))), "{}"),
        ("town,1990,1991", "Bern{k},{k}.5,3"),
    ],
    ids=["station", "time", "years", "numbers only", "narrow"],
)
def test_numbers_may_name_the_columns(tmp_path, header, data):
    path = tmp_path / "table.csv"
    values = ",".join(str(9.5 - k) for k in range(12))
    body = [data.replace("{}", values).replace("{k}", str(k)) for k in range(5)]
    path.write_text("\n".join([header, *body]) + "\n")
    layout = guess_layout(path)
    assert isinstance(layout, WideLayout)
    assert list(layout.names) == header.split(",")
    without = guess_layout(path, header=False)
    assert not without.names


@pytest.mark.parametrize(
    "text",
    [
        "1\t1\t5\t874965758\n1\t2\t3\t876893171\n2\t1\t4\t1\n",
        "ann,1,5\nann,2,1\nbob,3,2\n",
        "ann,1,2,3,4,5,6\nbob,2,3,4,5,6,7\n",
        "1,2,3,4,5,6\n",
    ],
    ids=["MovieLens", "text ids", "increasing values", "one line"],
)
def test_increasing_numbers_are_not_always_names(tmp_path, text):
    path = tmp_path / "table.csv"
    path.write_text(text)
    assert not guess_layout(path).names


def test_clean_keeps_a_header_of_numbers(tmp_path, truth):
    path = tmp_path / "years.csv"
    cells = (truth + 0.01 * np.random.default_rng(0).standard_normal(truth.shape)).round(3)
    cells[BAD] = 77.0
    frame = pd.DataFrame(cells, columns=range(1990, 1996))
    frame.insert(0, "station", [f"s{k}" for k in range(40)])
    frame.to_csv(path, index=False)
    result = run("clean", path, "-o", tmp_path / "out.csv", "--rank", 1, "--no-bias")
    assert result.exit_code == 0, result.output
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0] == path.read_text().splitlines()[0]
    frame.to_csv(path, index=False, header=False)
    plain = run("audit", path, "--rank", 1, "--no-bias")
    assert "--header if the first line names the columns" in plain.stderr


@pytest.mark.parametrize(
    "text",
    ["time,s1,s2\n0,1,2\n1,3,4\n2,1,2\n", "day,s1,s2,s3\n1,5,6,7\n2,6,6,8\n3,5,7,7\n"],
    ids=["time", "day"],
)
def test_narrow_files_with_labels_are_wide(tmp_path, text):
    path = tmp_path / "narrow.csv"
    path.write_text(text)
    assert isinstance(guess_layout(path), WideLayout)
    repeated = tmp_path / "long.csv"
    repeated.write_text("day,shop,sold\n1,5,6\n1,6,6\n2,5,7\n2,6,3\n")
    assert not isinstance(guess_layout(repeated), WideLayout)


def test_the_layout_is_printed_before_an_error(tmp_path):
    path = tmp_path / "narrow.csv"
    path.write_text("place,s1,s2,s3\n1,5,6,7\n2,6,6,8\n1,5,7,7\n")
    result = run("audit", path)
    assert result.exit_code == 3
    notes, _, error = result.stderr.partition("duplicate entry")
    assert error
    assert "row=place (integer), col=s1 (integer), value=s2" in notes
    assert "--wide if a line has a field for every column" in notes
    path.write_text("user,item,rating\n1,5,6\n1,5,7\n")
    assert "--wide" not in run("audit", path).stderr


def test_files_of_excel_are_refused_with_the_remedy(tmp_path):
    path = tmp_path / "jester-data-1.xls"
    path.write_bytes(b"\xd0\xcf\x11\xe0")
    with pytest.raises(MalformedFileError, match=r"CSV or Parquet; .*datasets.load_jester"):
        read_ratings(path)
    result = run("audit", path)
    assert result.exit_code == 3
    assert "load_jester" in result.stderr


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("replace", [False, True])
def test_a_cleaned_file_keeps_its_lines_without_a_value(tmp_path, kind, replace):
    """Their ids are no ids of the matrix, so that the lines of the others are not confused."""
    rng = np.random.default_rng(0)
    i, j = np.divmod(np.arange(400), 20)
    table = pd.DataFrame({"user": i, "item": j, "rating": (i + 1.0) * (j + 2)})
    table["rating"] += 0.1 * rng.standard_normal(400)
    table.loc[77, "rating"] += 300
    first = pd.DataFrame({"user": [-5, 3], "item": [4, -1], "rating": [np.nan, np.nan]})
    table = pd.concat([first, table, table.iloc[:1].assign(user=30, rating=np.nan)])
    path, out = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path, index=False)
    options = ["--rank", "1", "--no-bias", "--json"] + ["--replace"] * replace
    result = run("clean", path, "-o", out, *options)
    assert result.exit_code == 0, result.output
    before = table.reset_index(drop=True)
    after = pd.read_csv(out) if kind == "csv" else pd.read_parquet(out)
    if not replace:
        before = before.drop(index=79).reset_index(drop=True)
    else:
        assert after.loc[79, "rating"] == pytest.approx(4 * 19, rel=0.01)
        before.loc[79, "rating"] = after.loc[79, "rating"]
    pd.testing.assert_frame_equal(after, before)
