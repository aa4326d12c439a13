"""Ids and names of files from others: quoted lines, terminals and spreadsheets."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import pty
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from robustmf import Observed, RobustMF
from robustmf.cli import app
from robustmf.cli.errors import BAD_INPUT, FAILED
from robustmf.cli.output import write_columns
from robustmf.io import MalformedFileError, read_ratings
from robustmf.io.reading import delimited, filtered_copy
from robustmf.io.reading.layout import quote_stays_open, records
from robustmf.io.reading.options import ReadingOptions
from robustmf.report.names import csv_text
from robustmf.report.search_table import csv_of
from stress.system_calls import disk_full, failing_call

ESCAPE = "\x1b]0;title\x07\x1b[31m"
HOSTILE = ("=cmd|' /C calc'!A0", "+SUM(1;2)", "-2+3", "@SUM(A1)", "\t=1", "-5", "+1e3", "plain")


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "120"})


def triplet_file(path, rows, columns, outlier=True):
    """A file of rank 1 with these row ids; the first value is an outlier."""
    values = np.outer(np.arange(1, len(rows) + 1), np.arange(1, len(columns) + 1)).astype(float)
    if outlier:
        values[0, 0] += 50
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        writer.writerow(["user", "item", "rating"])
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                writer.writerow([row, column, values[i, j]])
    return path


ROWS = ['two\nlines "quoted"', *(f"row {k}\r\nnext" for k in range(12))]
COLUMNS = [f'"{k}' for k in range(12)]


@pytest.mark.parametrize("block", [7, 1 << 22])
def test_clean_of_a_file_with_quoted_newlines(tmp_path, monkeypatch, block):
    monkeypatch.setattr(filtered_copy, "OPTIONS", ReadingOptions(copied_bytes=block))
    path = triplet_file(tmp_path / "table.csv", ROWS, COLUMNS)
    clean = tmp_path / "clean.csv"
    result = run("clean", path, "-o", clean, "--rank", 1, "--no-bias", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["removed"] >= 1
    with path.open(newline="") as old, clean.open(newline="") as new:
        before = list(csv.reader(old))
        after = list(csv.reader(new))
    assert len(before) == 1 + len(ROWS) * len(COLUMNS)
    removed = [record for record in before if record not in after]
    assert [ROWS[0], COLUMNS[0], "51.0"] in removed
    assert len(after) == len(before) - json.loads(result.stdout)["removed"]
    assert [record for record in before if record not in removed] == after


def test_predictions_replace_values_in_lines_with_quoted_newlines(tmp_path):
    """The line breaks were not quoted again, so that the file could not be read any more."""
    rows = ["two\nlines", *(f"row {k}\rnext" for k in range(12))]
    path = triplet_file(tmp_path / "table.csv", rows, COLUMNS)
    clean = tmp_path / "clean.csv"
    result = run("clean", path, "-o", clean, "--rank", 1, "--no-bias", "--replace")
    assert result.exit_code == 0, result.stderr
    with path.open(newline="") as old, clean.open(newline="") as new:
        before = list(csv.reader(old))
        after = list(csv.reader(new))
    assert [record[:2] for record in after] == [record[:2] for record in before]
    assert float(after[1][2]) == pytest.approx(1, abs=0.5)


@pytest.mark.parametrize("most", [1 << 16, 1 << 30])
def test_quoted_newlines_at_the_ends_of_blocks_are_read(tmp_path, most, monkeypatch):
    """Arrow reads a block at a time, also where the file is larger than the largest block."""
    options = replace(delimited.OPTIONS, arrow_bytes=1 << 16, max_arrow_bytes=most)
    monkeypatch.setattr(delimited, "OPTIONS", options)
    rows = [f"r{k}" + f"\n{'x' * 500}" * 20 for k in range(120)]
    path = triplet_file(tmp_path / "table.csv", rows, ["a", "b"])
    assert read_ratings(path).shape == (120, 2)


def test_a_malformed_line_after_quoted_newlines_has_its_number(tmp_path):
    path = triplet_file(tmp_path / "table.csv", ["a\nb", "c"], ["x"])
    path.write_text(path.read_text() + '"d","x","five"\n')
    with pytest.raises(MalformedFileError, match=r"line 5: value 'five'"):
        read_ratings(path)


@pytest.mark.parametrize(
    ("line", "inside", "expected"),
    [
        ("a,b", False, False),
        ('"a,b', False, True),
        ('a",b', False, False),
        ('"a""', False, True),
        ('"a"",b"', False, False),
        ('"a"b",c', False, False),
        ('x,"', False, True),
        ('x",y', True, False),
        ('x","y', True, True),
        ("x", True, True),
        ("", False, False),
    ],
)
def test_quotes_are_special_at_the_beginning_of_a_field(line, inside, expected):
    assert quote_stays_open(line, ",", '"', inside) is expected
    assert quote_stays_open(line.encode(), b",", b'"', inside) is expected


def test_records_have_the_numbers_of_their_first_lines():
    lines = ["h\n", '"a\n', 'b",1\n', "c\n", '"open\n', "end"]
    assert list(records(lines, ",")) == [
        (1, "h\n"),
        (2, '"a\nb",1\n'),
        (4, "c\n"),
        (5, '"open\nend'),
    ]
    assert len(list(records(lines, "::"))) == 6


def test_predict_keeps_quoted_newlines(tmp_path):
    path = triplet_file(tmp_path / "table.csv", ROWS, COLUMNS, outlier=False)
    model = tmp_path / "model.rmf"
    assert run("fit", path, "--rank", 1, "--no-bias", "-o", model).exit_code == 0
    out = tmp_path / "out.csv"
    result = run("predict", model, path, "-o", out)
    assert result.exit_code == 0, result.stderr
    with out.open(newline="") as file:
        header, *lines = csv.reader(file)
    assert header == ["user", "item", "rating", "prediction"]
    assert [line[:2] for line in lines] == [[row, column] for row in ROWS for column in COLUMNS]


# --- Spreadsheets ---


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_that_are_no_numbers_cannot_begin_a_formula(text):
    is_number = text in ("-5", "+1e3")
    expected = text if is_number or text == "plain" else f"'{text}"
    assert csv_text(text) == expected


@pytest.mark.parametrize("before", [" ", "  ", "\u00a0", "\u3000", "\ufeff", "\u200b "])
def test_blanks_before_a_formula_do_not_hide_it(before):
    assert csv_text(f"{before}=1+1") == f"'{before}=1+1"
    assert csv_text(f"{before}name") == f"{before}name"


@pytest.mark.parametrize("sign", "\uff1d\uff0b\uff0d\uff20")
def test_full_width_signs_begin_a_formula(sign):
    assert csv_text(f"{sign}1") == f"'{sign}1"
    assert csv_text(f"a{sign}1") == f"a{sign}1"


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_recommendations_and_audits_contain_no_formulas(tmp_path, ending):
    names = [*HOSTILE, *(f"={k}+{k}" for k in range(8))]
    data = triplet_file(tmp_path / "table.csv", names, names)
    model = tmp_path / "model.rmf"
    out = tmp_path / f"out.{ending}"
    listed = tmp_path / f"listed.{ending}"
    assert run("fit", data, "--rank", 1, "--no-bias", "-o", model).exit_code == 0
    assert run("recommend", model, "--all", "--include-seen", "-o", out).exit_code == 0
    result = run("audit", data, "--rank", 1, "--no-bias", "--at-most", 0.5, "-o", listed)
    assert result.exit_code == 0, result.stderr
    for path in (out, listed):
        with path.open(newline="") as file:
            fields = [
                one
                for line in csv.reader(file, delimiter="," if ending == "csv" else "\t")
                for one in line
            ]
        formulas = [one for one in fields if one.startswith(("=", "+", "-", "@", "\t"))]
        assert len(fields) > 8
        assert all(float(one) is not None for one in formulas)
        assert any(one.startswith("'=") for one in fields)


@pytest.mark.parametrize("ending", ["\r", "\n", "\r\n"])
def test_line_breaks_in_ids_begin_no_record(tmp_path, ending):
    """What follows would be the first cell of a record, and a formula."""
    name = f"name{ending}=1+1"
    rows = [[name, 1, 2.5]]
    expected = [["id", "n", "value"], [name, "1", "2.5"]]
    path = tmp_path / "out.csv"
    write_columns({"id": [name], "n": [1], "value": [2.5]}, path)
    for text in (path.read_bytes().decode(), csv_of(expected[0], rows)):
        assert list(csv.reader(io.StringIO(text, newline=""))) == expected


# --- Terminals ---


@pytest.fixture
def hostile_model(tmp_path):
    rows = [f"{k}{ESCAPE}\x9b31m\u202e" for k in range(10)]
    triplets = [(row, f"{column}{ESCAPE}", 1.0 + len(row)) for row in rows for column in range(8)]
    entries = Observed.from_triplets(
        row=[one[0] for one in triplets],
        col=[one[1] for one in triplets],
        value=[one[2] for one in triplets],
    )
    path = tmp_path / "model.rmf"
    RobustMF(1, bias=False, random_state=0).fit(entries).save(path)
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("".join(f"{row},0{ESCAPE}\n" for row in rows))
    return path, pairs


def test_no_control_characters_of_files_are_in_the_notes_of_errors(tmp_path):
    path = tmp_path / f"{ESCAPE.replace('/', '')}.csv"
    path.write_text("1,2\n")
    result = run("audit", path)
    assert result.exit_code == BAD_INPUT
    assert "Error: " in result.stderr
    assert "\x1b]" not in result.stderr
    assert "\x07" not in result.stderr


def on_terminal(*arguments):
    """Standard output of a command that writes to a terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "robustmf.cli", *map(str, arguments)],
        stdout=follower,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"NO_COLOR": "1", "TERM": "dumb"},
    )
    os.close(follower)
    output = b""
    with contextlib.suppress(OSError):  # reported at the end of a pseudo-terminal
        while part := os.read(leader, 10_000):
            output += part
    os.close(leader)
    assert process.wait() == 0
    return output.decode()


@pytest.mark.parametrize("command", ["predict", "recommend"])
def test_no_control_characters_of_ids_reach_a_terminal(hostile_model, command):
    model, pairs = hostile_model
    arguments = (model, pairs) if command == "predict" else (model, "--all", "--include-seen")
    output = on_terminal(command, *arguments)
    assert r"\x1b]0;title\x07" in output
    assert not set(output) & set("\x1b\x07\x9b\u202e")
    # a pipe receives the ids as they are
    result = run(command, *arguments)
    assert ESCAPE in result.stdout


def test_notes_errors_tables_and_json_are_escaped(tmp_path, hostile_model):
    model, pairs = hostile_model
    hostile_name = "user\x1b[31m\x9b[red]"
    rows = [f"{k}\x9b\u202e" for k in range(12)]
    path = triplet_file(tmp_path / "table.csv", rows, rows)
    path.write_text(path.read_text().replace('"user"', hostile_name, 1))
    results = [
        run("audit", path, "--rank", 1, "--no-bias", "--at-most", 0.5),
        run("audit", path, "--rank", 1, "--no-bias", "--at-most", 0.5, "--json"),
        run("fit", path, "--row", f"none{ESCAPE}"),
        run("predict", model, pairs, "--json"),
    ]
    assert [result.exit_code for result in results] == [0, 0, 3, 0]
    for result in results:
        assert not set(result.output) & set("\x1b\x07\x9b\u202e")
    assert "[red]" in results[0].stdout
    assert json.loads(results[1].stdout)["entries"][0]["row"] in rows
    assert json.loads(results[3].stdout)[0]["column"] == f"0{ESCAPE}"


# --- Full disks ---


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "page.html", "new.rmf"])
def test_a_full_disk_is_reported_with_the_name_and_keeps_the_old_file(tmp_path, name):
    data = triplet_file(tmp_path / "table.csv", [f"r{k}" for k in range(12)], ["a", "b", "c"])
    model = tmp_path / "model.rmf"
    assert run("fit", data, "--rank", 1, "--no-bias", "-o", model).exit_code == 0
    path = tmp_path / name
    path.write_text("old")
    commands = {
        "page.html": ("fit", data, "--rank", 1, "--no-bias", "--report", path),
        "new.rmf": ("fit", data, "--rank", 1, "--no-bias", "-o", path),
    }
    command = commands.get(name, ("recommend", model, "--all", "--include-seen", "-o", path))
    path.unlink()
    assert run(*command).exit_code == 0  # imports modules, which open files
    path.write_text("old")
    with failing_call(2, disk_full) as counter:
        result = run(*command)
    assert counter.failed == "write"
    assert result.exit_code == FAILED
    assert f"No space left on device: '{path}'" in result.stderr
    assert path.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == sorted({"table.csv", "model.rmf", name})


# --- Standard streams that are closed ---


def test_closed_standard_streams_are_no_defect_of_the_program(tmp_path):
    data = triplet_file(tmp_path / "table.csv", [f"r{k}" for k in range(12)], ["a", "b", "c"])
    model = tmp_path / "model.rmf"
    program = f"'{sys.executable}' -m robustmf"
    fit = f"{program} fit '{data}' --rank 1 --no-bias -o '{model}' >&- 2>&-"
    subprocess.run(fit, shell=True, timeout=200, check=True)
    predict = f"{program} predict '{model}' '{data}'"
    result = subprocess.run(
        f"{predict} >&-", shell=True, stderr=subprocess.PIPE, text=True, timeout=200, check=False
    )
    assert result.returncode == FAILED
    assert "Error: standard output is closed; write to a file with --output" in result.stderr
    assert subprocess.run(
        f"{predict} 2>&-", shell=True, stdout=subprocess.PIPE, timeout=200, check=True
    ).stdout
