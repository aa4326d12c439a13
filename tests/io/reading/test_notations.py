"""Text files as programs and people write them: decimal commas, codes, counts and comments."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from robustmf.cli import app
from robustmf.datasets import load_jester
from robustmf.io import Layout, MalformedFileError, WideLayout, guess_layout, read_ratings
from robustmf.io.reading import wide
from robustmf.io.reading.options import ReadingOptions

BAD = (9, 3)
NAMES = [f"s{k}" for k in range(8)]


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "120"})


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    cells = np.outer(rng.uniform(1, 3, 30), rng.uniform(2, 8, 8))
    cells += 0.02 * rng.standard_normal(cells.shape)
    cells[BAD] = 90.5
    cells[2, 4] = np.nan
    table = pd.DataFrame(cells.round(3), columns=NAMES)
    table.insert(0, "station", [f"{k:04}" for k in range(30)])
    return table


def cells_of(frame):
    return frame[NAMES].to_numpy()


@pytest.mark.parametrize("most_columns", [4096, 0])
@pytest.mark.parametrize("header", [True, False])
def test_decimal_commas(frame, tmp_path, monkeypatch, header, most_columns):
    monkeypatch.setattr(wide, "OPTIONS", ReadingOptions(max_arrow_columns=most_columns))
    path = tmp_path / "table.csv"
    frame["station"] = "st" + frame["station"]
    frame.to_csv(path, index=False, sep=";", decimal=",", header=header)
    found = guess_layout(path)
    assert isinstance(found, WideLayout)
    assert str(found).startswith("semicolon-separated, decimal comma, ")
    entries = read_ratings(path)
    assert entries.row_ids == frame["station"].tolist()
    np.testing.assert_array_equal(entries.to_dense(), cells_of(frame))


def test_decimal_commas_of_a_long_file(frame, tmp_path):
    path = tmp_path / "long.csv"
    long = frame.melt(id_vars="station", var_name="sensor", value_name="reading").dropna()
    long.to_csv(path, index=False, sep=";", decimal=",")
    assert isinstance(guess_layout(path), Layout)
    entries = read_ratings(path)
    np.testing.assert_array_equal(entries.to_dense(), cells_of(frame))


def test_points_are_not_thousands_separators(frame, tmp_path):
    path = tmp_path / "table.csv"
    frame.to_csv(path, index=False, sep=";")
    assert guess_layout(path).decimal == "."
    path.write_text(path.read_text() + "9999;1,5;1;1;1;1;1;1;1\n")
    with pytest.raises(MalformedFileError, match=r"line 32: value '1,5' .*decimal=','"):
        read_ratings(path)
    with pytest.raises(ValueError, match="not the delimiter"):
        read_ratings(path, delimiter=",", decimal=",")


def test_a_cleaned_file_keeps_decimal_commas(frame, tmp_path):
    path, out = tmp_path / "table.csv", tmp_path / "cleaned.csv"
    frame.to_csv(path, index=False, sep=";", decimal=",")
    result = run("clean", path, "-o", out, "--replace", "--rank", 1, "--no-bias")
    assert result.exit_code == 0, result.output
    cleaned = pd.read_csv(out, sep=";", decimal=",", dtype={"station": str})
    assert cleaned["station"].equals(frame["station"])
    changed = (cleaned[NAMES] != frame[NAMES]) & frame[NAMES].notna()
    assert changed.to_numpy()[BAD]
    assert cleaned[NAMES].to_numpy()[BAD] < 30


@pytest.mark.parametrize("word", ["-", "n/a", "?", "#N/A", "<NA>"])
def test_words_for_missing_values(frame, tmp_path, word):
    path = tmp_path / "table.csv"
    frame.to_csv(path, index=False, na_rep=word)
    np.testing.assert_array_equal(read_ratings(path).to_dense(), cells_of(frame))


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        (lambda cell: f"{cell:.1f}%", "without the percent sign"),
        (lambda cell: f"{1000 * cell:,.1f}", "without thousands separators"),
        (lambda cell: "defect" if cell > 80 else cell, "'defect' is not a finite number"),
    ],
)
def test_a_wide_file_with_other_notations_is_not_read_as_a_long_one(
    frame, tmp_path, change, remedy
):
    """One column with such fields made the first three columns ids and values, without an error."""
    path = tmp_path / "table.csv"
    frame["s3"] = frame["s3"].map(change)
    frame[["station", "s3", *(one for one in NAMES if one != "s3")]].to_csv(path, index=False)
    with pytest.raises(MalformedFileError, match=remedy):
        read_ratings(path)


def test_a_long_file_with_further_columns_is_long(tmp_path):
    path = tmp_path / "long.csv"
    lines = [f"a{k % 7},b{k % 5},{k % 4},{k},0.5,1.5,2" for k in range(30)]
    path.write_text("\n".join(["kunde,artikel,sterne,zeit,x,y,z", *lines]))
    assert isinstance(guess_layout(path), Layout)


def test_a_comment_before_the_header_is_named(frame, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("# stations of the north\n" + frame.to_csv(index=False))
    with pytest.raises(MalformedFileError, match=r"line 1: .*looks like a comment"):
        read_ratings(path)


def test_removed_cells_between_spaces_are_nan(frame, tmp_path):
    """Programs that split at any number of spaces would shift the cells after an empty one."""
    path, out = tmp_path / "table.txt", tmp_path / "cleaned.txt"
    frame.to_csv(path, index=False, sep=" ", na_rep="NaN")
    assert run("clean", path, "-o", out, "--rank", 1, "--no-bias").exit_code == 0
    cleaned = pd.read_csv(out, sep=r"\s+")
    assert np.isnan(cleaned[NAMES].to_numpy()[BAD])
    assert cleaned.shape == frame.shape


@pytest.fixture
def jester(tmp_path):
    """A file as exported from the official ones: the count, then 100 ratings, 99 if missing."""
    rng = np.random.default_rng(0)
    ratings = rng.uniform(-10, 10, (120, 100)).round(2)
    ratings[rng.random(ratings.shape) < 0.3] = np.nan
    ratings[0, 0] = 0.0
    counts = np.count_nonzero(~np.isnan(ratings), axis=1)
    path = tmp_path / "jester" / "jester-data-1.csv"
    path.parent.mkdir()
    lines = np.column_stack([counts, np.where(np.isnan(ratings), 99, ratings)])
    np.savetxt(path, lines, delimiter=",", fmt="%g")
    return path, ratings


def test_raw_jester_in_python(jester):
    path, ratings = jester
    entries = read_ratings(path, missing=[99])
    np.testing.assert_array_equal(entries.to_dense(), ratings)
    known = load_jester(1, path.parent.parent, download=False).ratings
    np.testing.assert_array_equal(entries.to_dense(), known.to_dense())
    assert read_ratings(path, missing=[99], omit=[]).shape == (120, 101)


def test_raw_jester_on_the_command_line(jester):
    path, ratings = jester
    result = run("audit", path, "--missing", 99, "--rank", 1, "--top", 1)
    assert result.exit_code == 0, result.output
    size = f"120 rows x 100 columns, {np.count_nonzero(~np.isnan(ratings)):,} entries"
    assert size in result.output
    assert "values -10 to 10" in result.output
    assert "number of the values of its line" in result.output


@pytest.mark.parametrize("options", [(), ("--fill",)], ids=["removed", "filled"])
def test_a_cleaned_file_with_counts_and_a_code_is_read_as_before(tmp_path, options):
    rng = np.random.default_rng(0)
    ratings = np.outer(np.linspace(1, 3, 60), np.linspace(2, 9, 20))
    ratings = (ratings + 0.05 * rng.standard_normal(ratings.shape)).round(2)
    gaps = rng.random(ratings.shape) < 0.2
    gaps[7, 4] = False
    ratings[7, 4] = 60.0
    ratings[gaps] = np.nan
    path = tmp_path / "jester.csv"
    out = tmp_path / "out.csv"
    lines = np.column_stack([(~gaps).sum(axis=1), np.where(gaps, 99, ratings)])
    np.savetxt(path, lines, delimiter=",", fmt="%g")
    read = ("--wide", "--missing", 99, "--rank", 1, "--no-bias", "--json")
    result = run("clean", path, "-o", out, *read, "--at-most", 1e-8, *options)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["removed"] == 1
    written = [line.split(",") for line in out.read_text().splitlines()]
    assert written[7][5] == "99"
    values = [sum(float(field) != 99 for field in line[1:]) for line in written]
    assert [int(line[0]) for line in written] == values
    expected = ratings.copy()
    expected[7, 4] = np.nan
    again = read_ratings(out, missing=[99], wide=True).to_dense()
    np.testing.assert_array_equal(again[~gaps], expected[~gaps])
    assert again.shape == ratings.shape
    assert np.isnan(again).sum() == (1 if options else 1 + gaps.sum())
    audit = run("audit", out, *read)
    assert audit.exit_code == 0, audit.output
    assert "60 rows x 20 columns" in audit.stderr
    found = json.loads(audit.stdout)["entries"]
    assert all(one["score"] > 1e-8 for one in found)


def test_columns_are_omitted_by_name(frame, tmp_path):
    path = tmp_path / "table.csv"
    frame.assign(remark="none").to_csv(path, index=False)
    entries = read_ratings(path, wide=True, omit=["remark", "s0"])
    assert entries.column_ids == NAMES[1:]
    result = run("audit", path, "--wide", "--omit", "remark, s0", "--rank", 1)
    assert "30 rows x 7 columns" in result.output
    with pytest.raises(ValueError, match="omit='remarks' is not a column"):
        read_ratings(path, wide=True, omit=["remarks"])
    with pytest.raises(ValueError, match="for a wide file only"):
        read_ratings(path, wide=False, row="station", col="remark", value="s0", omit=["s1"])


def test_options_of_text_files_are_refused_for_others(frame, tmp_path):
    path = tmp_path / "table.parquet"
    frame.to_parquet(path)
    with pytest.raises(ValueError, match="text files only"):
        read_ratings(path, omit=["s0"])
    assert run("audit", path, "--decimal", "comma").exit_code == 3
    assert run("audit", path, "--decimal", "colon").exit_code == 2
