"""The command line: input, output and exit codes."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from decimal import Decimal
from types import SimpleNamespace
from typing import get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp
from typer.testing import CliRunner

import robustmf
from robustmf.backends.registry import device_names
from robustmf.cli import app, config, load_command
from robustmf.cli.errors import as_options
from robustmf.cli.fit_options import SolverOptions
from robustmf.io import guess_layout, read_ratings
from robustmf.io.reading import filtered_copy
from robustmf.io.reading.options import ReadingOptions
from robustmf.solvers.registry import solver_names


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "120"})


def last_line(result):
    return result.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def triplets():
    """Triplets of a noisy rank-2 matrix in random order, and which of them are outliers."""
    rng = np.random.default_rng(3)
    X = (
        3
        + rng.standard_normal((90, 2)) @ rng.standard_normal((60, 2)).T
        + 0.1 * rng.standard_normal((90, 60))
    )
    i, j = np.nonzero(rng.random(X.shape) < 0.5)
    order = rng.permutation(len(i))
    i = i[order]
    j = j[order]
    values = X[i, j].round(3)
    bad = np.zeros(len(i), bool)
    bad[rng.choice(len(i), 40, replace=False)] = True
    values[bad] += 8
    return i, j, values, bad


@pytest.fixture
def table(tmp_path, triplets):
    i, j, values, _ = triplets
    path = tmp_path / "table.csv"
    lines = [f'{u},"c, {c}",{v},{k}' for k, (u, c, v) in enumerate(zip(i, j, values, strict=True))]
    path.write_text("\n".join(["user,item,rating,when", *lines]) + "\n")
    return path


@pytest.fixture
def model(table):
    path = table.with_name("model.rmf")
    assert run("fit", table, "--rank", 2, "--no-bias", "-o", path).exit_code == 0
    return path


def test_a_model_fitted_in_a_terminal_is_not_saved_as_verbose(table, monkeypatch, tmp_path):
    terminal = SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("robustmf.cli.fit_options.sys", terminal)
    path = tmp_path / "model.rmf"
    assert run("fit", table, "--rank", 1, "--max-iter", 5, "-o", path).exit_code == 0
    assert robustmf.load(path).verbose == 0


def test_non_negative_factors(table, tmp_path):
    path = tmp_path / "model.rmf"
    assert run("fit", table, "--rank", 2, "--nonnegative", "-o", path).exit_code == 0
    model = robustmf.load(path)
    assert model.nonnegative is True
    assert min(model.row_factors_.min(), model.column_factors_.min()) == 0
    refused = run("fit", table, "--nonnegative", "--bias", "-o", path)
    assert refused.exit_code == 2
    assert "--nonnegative" in refused.stderr


def test_fit_saves_the_model_of_the_library(table, model, triplets):
    i, j, values, _ = triplets
    columns = [f"c, {c}" for c in j]
    entries = robustmf.Observed.from_triplets(row=i.tolist(), col=columns, value=values)
    ours = robustmf.RobustMF(2, bias=False, random_state=0).fit(entries)
    np.testing.assert_array_equal(robustmf.load(model).row_factors_, ours.row_factors_)


def test_biases_are_chosen_from_the_data_by_default(table):
    """An offset of 3 with rank 2: with biases the error of held-out entries is lower."""
    chosen, given = (
        json.loads(run("fit", table, "--rank", 2, *more, "--json").stdout)["settings"]["bias"]
        for more in ((), ("--no-bias",))
    )
    assert (chosen, given) == (True, False)


@pytest.fixture
def found_rank(table):
    """The rank that the library finds for the table."""
    found = robustmf.RobustMF(bias=True, random_state=0).fit(read_ratings(table)).rank_
    # the biases are subtracted first; their errors add up to two factors
    assert 2 <= found <= 4
    return found


def test_rank_is_found_by_default(table, found_rank):
    fitted = run("fit", table, "--bias")
    assert f"rank {found_rank}, found, biases" in fitted.stdout
    audited = run("audit", table, "--json")
    document = json.loads(audited.stdout)
    assert (document["rank"], document["rank_found"]) == (found_rank, True)
    assert f"rank {found_rank}, found; --rank sets it" in audited.stderr


def test_given_rank_is_used(table):
    assert "rank 4, given, biases" in run("fit", table, "--bias", "--rank", 4).stdout
    audited = run("audit", table, "--rank", 4, "--json")
    document = json.loads(audited.stdout)
    assert (document["rank"], document["rank_found"]) == (4, False)
    assert "--rank sets it" not in audited.stderr


def test_rank_of_a_config_file_is_auto_or_an_integer(table, found_rank, tmp_path):
    settings = tmp_path / "robustmf.toml"
    for written, rank, found in (("'auto'", found_rank, True), ("4", 4, False)):
        settings.write_text(f"[fit]\nrank = {written}\nbias = true\njson = true\n")
        result = json.loads(run("fit", table, "--config", settings).stdout)["settings"]
        assert (result["rank"], result["rank_found"]) == (rank, found)


def test_detected_layout_is_printed_to_standard_error(table):
    result = run("fit", table, "--rank", 2, "--json")
    assert (
        "comma-separated, header; row=user (integer), col=item (text), value=rating"
        in result.stderr
    )
    found = json.loads(result.stdout)
    assert found["data"]["rows"] == 90
    assert found["converged"] is True
    assert "\x1b" not in run("fit", table, "--rank", 2).output  # no colors outside a terminal


def test_layout_options(tmp_path, triplets):
    i, j, values, _ = triplets
    path = tmp_path / "plain.txt"
    path.write_text("".join(f"{v};{c};{u}\n" for u, c, v in zip(i, j, values, strict=True)))
    result = run(
        "fit",
        path,
        "--rank",
        2,
        "--row",
        2,
        "--col",
        1,
        "--value",
        0,
        "--delimiter",
        "semicolon",
        "--no-header",
        "--json",
    )
    assert result.exit_code == 0, result.output
    assert (
        json.loads(result.stdout)["data"]["rows"],
        json.loads(result.stdout)["data"]["columns"],
    ) == (90, 60)


def test_predict_adds_a_column_and_keeps_the_others(table, model):
    pairs = table.with_name("pairs.csv")
    out = table.with_name("out.csv")
    pairs.write_text('note,item,user\nfirst,"c, 3",4\nunknown,"c, 3",4711\n')
    result = run("predict", model, pairs, "-o", out)
    assert result.exit_code == 0, result.output
    assert "1 of 2 row ids are unknown to the fit, such as 4711" in result.stderr
    header, first, unknown = out.read_text().splitlines()
    assert header == "note,item,user,prediction"
    fitted = robustmf.load(model)
    assert first == f'first,"c, 3",4,{fitted.predict([4], ["c, 3"])[0]:.7g}'
    assert unknown == f'unknown,"c, 3",4711,{fitted.median_:.7g}'


def test_predict_computes_intervals_from_held_out_entries(table, tmp_path, triplets):
    lines = table.read_text().splitlines()
    train = tmp_path / "train.csv"
    rest = tmp_path / "rest.csv"
    train.write_text("\n".join(lines[:2200]) + "\n")
    rest.write_text("\n".join([lines[0], *lines[2200:]]) + "\n")
    model = tmp_path / "m.rmf"
    run("fit", train, "--rank", 2, "-o", model)
    result = run("predict", model, rest, "--held-out", rest, "--json", "--level", 0.8)
    found = json.loads(result.stdout)
    good = [k for k, one in enumerate(found) if not triplets[3][2199 + k]]
    inside = np.mean(
        [found[k]["lower"] <= triplets[2][2199 + k] <= found[k]["upper"] for k in good]
    )
    assert 0.75 < inside < 0.87
    assert run("predict", model, rest, "--held-out", train).exit_code == 3


def test_recommend(table, model):
    result = run("recommend", model, "--users", "4,5", "-n", 3)
    lines = list(csv.DictReader(result.stdout.splitlines()))
    items, scores = robustmf.load(model).recommend([4, 5], 3)
    assert [line["item"] for line in lines] == items.ravel().tolist()
    assert [float(line["prediction"]) for line in lines] == pytest.approx(
        scores.ravel().tolist(), rel=1e-6
    )
    assert len(json.loads(run("recommend", model, "--all", "-n", 2, "--json").stdout)) == 180
    some = table.with_name("some.txt")
    some.write_text("4\n5\n")
    assert run("recommend", model, "--users-from", some, "-n", 3).stdout == result.stdout
    assert run("recommend", model, "--users", "4", "--all").exit_code == 2
    assert run("recommend", model, "--users", "x").exit_code == 2
    assert (
        run("recommend", model, "--users", "4711").exit_code == 2
    )  # without biases an unknown row has no ranking
    assert run("recommend", model, "--users", "4,,5,4", "-n", 3).stdout == result.stdout, (
        "each id once, in the given order"
    )
    mixed = run("recommend", model, "--users", "4,4711,5", "-n", 3)
    assert mixed.stdout == result.stdout, "an unknown id does not affect the others"
    assert "1 of 3 users are unknown" in mixed.stderr
    assert "highest biases" not in mixed.stderr


def test_audit_detects_outliers_and_clean_writes_the_file_without_them(table, triplets):
    out = table.with_name("suspicious.csv")
    clean = table.with_name("clean.csv")
    for command in (("audit", table, "-o", out), ("clean", table, "-o", clean)):
        result = run(*command, "--rank", 2)
        assert result.exit_code == 0, result.output
    bad = triplets[3]
    kept = clean.read_text().splitlines()
    lines = table.read_text().splitlines()
    assert kept[0] == lines[0]
    left_out = [line not in set(kept) for line in lines[1:]]
    assert np.all(np.array(left_out)[bad])
    assert np.mean(np.array(left_out)[~bad]) < 0.004
    assert kept[1:] == [line for line, gone in zip(lines[1:], left_out, strict=True) if not gone]
    listed = list(csv.DictReader(out.read_text().splitlines()))
    entries = [(line["row"], line["column"]) for line in listed if line["kind"] == "entry"]
    assert {
        (str(i), f"c, {j}") for i, j in zip(triplets[0][bad], triplets[1][bad], strict=True)
    } <= set(entries)
    assert all("was expected" in line["reason"] for line in listed if line["kind"] == "entry")


@pytest.mark.parametrize("kind", ["csv.gz", "parquet", "npz", "mtx"])
def test_cleaned_file_has_the_same_format(tmp_path, triplets, kind):
    i, j, values, bad = triplets
    path = tmp_path / f"data.{kind}"
    clean = tmp_path / f"clean.{kind}"
    matrix = sp.coo_array((values, (i, j)), shape=(90, 60))
    if kind == "npz":
        sp.save_npz(path, matrix)
    elif kind == "mtx":
        scipy.io.mmwrite(path, matrix)
    elif kind == "parquet":
        pq.write_table(
            pa.table({"item": [f"c{k}" for k in j], "rating": values, "user": i, "more": values}),
            path,
        )
    else:
        with pa.output_stream(str(path)) as stream:
            stream.write(
                "".join(f"{u}\t{c}\t{v}\r\n" for u, c, v in zip(i, j, values, strict=True)).encode()
            )
    result = run("clean", path, "--rank", 2, "-o", clean, "--json")
    assert result.exit_code == 0, result.output
    removed = json.loads(result.stdout)["removed"]
    assert bad.sum() <= removed < bad.sum() + 10
    again = json.loads(run("fit", clean, "--rank", 2, "--json").stdout)
    assert again["data"]["entries"] == len(values) - removed
    if kind == "parquet":
        assert pq.read_table(clean).column_names == ["item", "rating", "user", "more"]
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("bytes_at_once", [1, 7, 1 << 22])
def test_cleaned_file_keeps_all_other_bytes(tmp_path, monkeypatch, bytes_at_once):
    monkeypatch.setattr(filtered_copy, "OPTIONS", ReadingOptions(copied_bytes=bytes_at_once))
    path = tmp_path / "in.csv"
    out = tmp_path / "out.csv"
    path.write_bytes(
        b"\xef\xbb\xbfuser,item,rating,note\r\n\r\n1,b,2,\xc3\xa9\r\n1,a,1,\r\n\n2,a,5,x\n2,b,4,y"
    )
    entries = read_ratings(path)  # by rows: (1, a), (1, b), (2, a), (2, b)
    removed = filtered_copy.copy_without_entries(
        path, guess_layout(path), None, entries, np.array([True, False, False, True]), out
    )
    assert removed == 2
    assert (
        out.read_bytes()
        == b"\xef\xbb\xbfuser,item,rating,note\r\n\r\n1,b,2,\xc3\xa9\r\n\n2,a,5,x\n"
    )


def test_decimal_numbers_of_a_cleaned_parquet_file(tmp_path):
    path = tmp_path / "in.parquet"
    out = tmp_path / "out.parquet"
    values = pa.array([Decimal("2.50"), Decimal("1.25"), Decimal("3.00")])
    pq.write_table(pa.table({"user": [1, 1, 2], "item": [1, 2, 1], "rating": values}), path)
    entries = read_ratings(path)
    removed = filtered_copy.copy_without_entries(
        path, None, ("user", "item", "rating"), entries, np.array([True, False, False]), out
    )
    assert removed == 1
    assert pq.read_table(out)["rating"].to_pylist() == [Decimal("1.25"), Decimal("3.00")]


def test_cleaned_file_of_another_format_is_refused(table):
    result = run("clean", table, "-o", table.with_name("clean.parquet"))
    assert result.exit_code == 2
    assert "give it the ending .csv" in last_line(result)


@pytest.mark.parametrize("command", ["fit", "audit", "clean"])
def test_an_input_file_is_not_overwritten(table, command):
    content = table.read_bytes()
    result = run(command, table, "-o", table.parent / "." / table.name)
    assert result.exit_code == 2
    assert "is also an input file; write to another file" in last_line(result)
    assert table.read_bytes() == content


def test_predictions_do_not_overwrite_the_model(table, model):
    content = model.read_bytes()
    assert run("predict", model, table, "-o", model).exit_code == 2
    assert run("recommend", model, "--all", "-o", model).exit_code == 2
    assert model.read_bytes() == content


def test_command_line_overrides_the_config_file(table, tmp_path):
    settings = tmp_path / "robustmf.toml"
    settings.write_text(
        "[fit]\nrank = 3\nloss = 'huber'\njson = true\nvalidation-fraction = 0.1\n"
        "[audit]\nrank = 1\n"
    )
    found = json.loads(run("fit", table, "--config", settings, "--rank", 2).stdout)
    assert (found["settings"]["rank"], found["settings"]["loss"]) == (2, "huber")
    assert found["validation_error"] > 0
    settings.write_text("[fit]\nrnak = 3\n")
    wrong = run("fit", table, "--config", settings)
    assert wrong.exit_code == 3
    assert "no setting 'rnak'; there are" in last_line(wrong)
    assert "validation-fraction" in last_line(wrong)
    settings.write_text("[fit\n")
    assert run("fit", table, "--config", settings).exit_code == 3
    assert run("fit", table, "--config", tmp_path / "none.toml").exit_code == 3


@pytest.mark.parametrize("name", ["fit", "audit", "predict", "recommend"])
def test_every_option_can_be_set_in_the_config_file(name):
    command = load_command(name)
    names = config.option_names(command)
    parameters = {one.name for one in command.params} - {"config", "help"}
    assert sorted(names.values()) == sorted(parameters)
    assert names["json"] == "as_json"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["fit", "nosuch.csv"], 3, "nosuch.csv not found"),
        (["fit", "{table}", "--rank", "0"], 2, "--rank: must be auto or an integer >= 1, got '0'"),
        (["audit", "{table}", "--rank", "many"], 2, "must be auto or an integer >= 1, got 'many'"),
        (["fit", "{table}", "--rank", "61"], 2, "got --rank 61"),
        (["fit", "{table}", "--loss", "l3"], 2, "got --loss 'l3'"),
        (["fit", "{table}", "--theta", "big"], 2, "must be auto or a number, got 'big'"),
        (["fit", "{table}", "--bounds", "1"], 2, "such as 1,5"),
        (["fit", "{table}", "--value", "item"], 3, "pass --row, --col and --value"),
        (
            ["fit", "{table}", "-o", "/nosuch/folder/m.rmf"],
            2,
            "make it first: mkdir -p '/nosuch/folder'",
        ),
        (["fit", "{table}", "--tracks"], 2, "needs --report"),
        (
            ["fit", "{table}", "--rank", "2", "--tracks", "--report", "{page}"],
            2,
            "tracks need rank 4",
        ),
        (["predict", "{table}", "{table}"], 3, "not a model file"),
        (["audit", "{broken}"], 3, "line 3"),
        (["audit", "{empty}"], 3, "there are no lines after the header"),
        (["audit", "{table}", "--duplicates", "first"], 2, "error, last or mean"),
        (["adit"], 2, "Did you mean"),
        (["audit", "--frobnicate"], 2, "try 'robustmf audit --help'"),
    ],
)
def test_error_is_one_line_with_an_exit_code(table, arguments, code, message):
    broken = table.with_name("broken.csv")
    broken.write_text("user,item,rating\n1,2,3\n1,3,many\n")
    empty = table.with_name("empty.csv")
    empty.write_text("user,item,rating\n")
    names = {"empty": empty, "table": table, "broken": broken, "page": table.with_name("page.html")}
    result = CliRunner().invoke(
        app, [argument.format(**names) for argument in arguments], prog_name="robustmf"
    )
    assert result.exit_code == code, result.output
    assert message in last_line(result)
    assert last_line(result).startswith("Error: ")
    assert sum(line.startswith("Error") for line in result.stderr.splitlines()) == 1
    assert "Traceback" not in result.output
    assert result.stdout == ""


def test_arguments_in_messages_become_options():
    assert as_options("pass row=, col= and value=") == "pass --row, --col and --value"
    assert (
        as_options("fit with bias=True, or rank=5; pass duplicates='last'")
        == "fit with --bias, or --rank 5; pass --duplicates 'last'"
    )
    assert as_options("/data/value=3/x.csv not found") == "/data/value=3/x.csv not found"


def command(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "robustmf.cli", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_debug_shows_the_traceback_at_any_position(table):
    stderr = command("fit", table, "--rank", "61", "--debug").communicate(timeout=120)[1]
    assert "Traceback" in stderr
    assert "ValueError: rank must be" in stderr


def test_help_imports_neither_numpy_nor_numba():
    code = (
        "import sys; from robustmf.cli import app; app(['--help'], standalone_mode=False);"
        " print({'numpy', 'numba'} & set(sys.modules))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert "audit" in shown
    assert shown.splitlines()[-1] == "set()"


def test_help_names_every_solver_and_device():
    """The registries import Numba, so that the help, which must be fast, does not read them."""
    options = get_type_hints(SolverOptions, include_extras=True)
    solvers, devices = (options[name].__metadata__[0].help for name in ("solver", "device"))
    assert solvers == f"auto, {', '.join(solver_names()[:-1])} or {solver_names()[-1]}."
    assert set(device_names()) <= set(re.findall(r"\w+", devices))


def test_ctrl_c_before_the_first_iteration(table):
    process = command("audit", table, "--rank", "5", env={**os.environ, "PYTHONUNBUFFERED": "1"})
    process.stderr.readline()  # the file is read; imports and the fit follow
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert stderr.splitlines()[-1] == "Error: interrupted"
    assert stdout == ""


def test_version():
    assert run("--version").output == f"robustmf {robustmf.__version__}\n"


def test_closed_pipe_is_not_an_error(table, model):
    process = subprocess.run(
        f"'{sys.executable}' -m robustmf.cli recommend '{model}' --all -n 50 | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout == "user,position,item,prediction\n"
    assert "Traceback" not in process.stderr
    assert "Error" not in process.stderr
