"""Input of fits on a Dask cluster: forms, refused data and parameters, the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from clusters import NAMES, in_pieces
from typer.testing import CliRunner

import robustmf
from robustmf import RobustMF
from robustmf.backends.dask import Triplets
from robustmf.backends.dask.source import LoadingOptions, as_triplets, pieces_of
from robustmf.cli import app
from robustmf.data.hashing import hash_ids
from robustmf.data.table_form import ColumnNames


def test_every_form_of_input(client, ratings, tmp_path):
    model = RobustMF(2, random_state=0)
    wanted = model.fit(in_pieces(ratings), client=client).row_factors_
    for k, piece in enumerate(in_pieces(ratings)):
        piece.to_parquet(tmp_path / f"{k}.parquet", index=False)
    forms = {
        "a Dask DataFrame": dd.from_pandas(ratings, npartitions=4),
        "a folder": tmp_path,
        "files": sorted(map(str, tmp_path.glob("*.parquet"))),
        "polars": [pl.from_pandas(piece) for piece in in_pieces(ratings)],
        "a mapping": [dict(ratings.items())],
        "futures": Triplets(client.scatter(in_pieces(ratings)), **NAMES),
    }
    for form, data in forms.items():
        np.testing.assert_allclose(
            model.fit(data, client=client).row_factors_, wanted, rtol=1e-9, err_msg=form
        )


@pytest.mark.parametrize("library", ["pandas", "polars", "lazy", "arrow", "mapping"])
def test_a_table_in_memory_is_sent_in_pieces(client, ratings, monkeypatch, library):
    """Its columns are those of the workers' pieces, and answers have its form and order."""
    shuffled = ratings.sample(frac=1, random_state=0)
    table = {
        "pandas": shuffled,
        "polars": pl.from_pandas(shuffled),
        "lazy": pl.from_pandas(shuffled).lazy(),
        "arrow": pa.table(dict(shuffled)),
        "mapping": dict(shuffled.items()),
    }[library]
    monkeypatch.setattr(
        "robustmf.backends.dask.source.LOADING", LoadingOptions(piece_lines=len(ratings) // 3)
    )
    pieces, _ = pieces_of(Triplets(table, **NAMES))
    assert [len(piece["user"]) for piece in pieces] == [len(ratings) // 3] * 3 + (
        [len(ratings) % 3] if len(ratings) % 3 else []
    )
    model = RobustMF(2, random_state=0)
    whole = model.fit([shuffled], client=client, **NAMES)
    expected = whole.row_factors_, whole.outlier_scores(shuffled)
    fitted = model.fit(table, client=client, **NAMES)
    np.testing.assert_allclose(fitted.row_factors_, expected[0], rtol=1e-9)
    scores = fitted.outlier_scores(table)
    np.testing.assert_allclose(np.asarray(scores), expected[1], rtol=1e-6)
    if library == "pandas":
        assert scores.index.equals(table.index)


def test_columns_are_named_in_fit_as_without_a_cluster(ratings):
    renamed = ratings.rename(columns=dict(zip(NAMES.values(), ("a", "b", "c"), strict=True)))
    names = ColumnNames("a", "b", "c")
    made = as_triplets([renamed], names)
    assert (made.row, made.col, made.value) == ("a", "b", "c")
    assert made.data[0] is renamed
    with pytest.raises(ValueError, match="either to Triplets or to fit"):
        as_triplets(Triplets([renamed]), names)


def test_ids_have_one_hash_in_every_process():
    code = (
        "from robustmf.data.hashing import hash_ids; "
        "print(hash_ids(['a', 'b', (1, 'x')]).tolist(), hash_ids([1, '1', 1.0]).tolist())"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
    assert len(set(hash_ids([1, "1", 1.0, True]).tolist())) == 1
    assert hash_ids(np.array([5, -5]))[0] == hash_ids([5])[0]
    assert hash_ids(np.array([5, -5]))[1] == hash_ids(["-5"])[0]


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (lambda f: dd.from_pandas(f, npartitions=2), "give client="),
        (lambda f: Triplets([f]), "give client="),
        (lambda f: "ratings", "the path 'ratings'"),
    ],
)
def test_dask_data_without_client(ratings, X, message):
    with pytest.raises(TypeError, match=message):
        RobustMF(2).fit(X(ratings))


def test_parameters_are_checked_before_loading(client):
    with pytest.raises(ValueError, match="tol must be"):
        RobustMF(2, tol=-1).fit("/nowhere", client=client)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (
            lambda f: Triplets([f], row="who", col="item", value="rating"),
            ValueError,
            "row='who' is not a column of the data; it has",
        ),
        (lambda f: [f.drop(columns=["rating", "trust"])], ValueError, "value=2 is not a position"),
        (lambda f: [f.iloc[:0]], ValueError, "at least one entry, got none"),
        (lambda f: [], ValueError, "at least one table"),
        (lambda f: f, ValueError, r"named by row=, col= and value=, got .* \['user', 'item'"),
        (lambda f: Triplets(f, row="who", col="item", value="rating"), ValueError, "'who' is not"),
        (lambda f: f.to_numpy(), TypeError, "a list of tables, got ndarray"),
        (lambda f: [7], TypeError, "got one of int"),
        (lambda f: "nowhere", FileNotFoundError, "nowhere is neither"),
        (lambda f: [f.assign(rating=np.inf)], ValueError, "values must be finite"),
        (lambda f: [f.assign(user=None)], ValueError, "row ids must not be missing"),
        (
            lambda f: [f, pl.from_pandas(f.assign(user=7)), pl.from_pandas(f.assign(user="7"))],
            ValueError,
            "both 7 and '7'",
        ),
        (
            lambda f: Triplets([f.assign(trust=-1.0)], weight="trust"),
            ValueError,
            "weights must be finite and >= 0",
        ),
        (
            lambda f: Triplets([f.assign(trust=0.0)], weight="trust"),
            ValueError,
            "weights must not all be 0",
        ),
        (
            lambda f: Triplets([f.assign(trust=np.nan)], weight="trust"),
            ValueError,
            "weights must not be missing",
        ),
        (lambda f: Triplets([f.iloc[:3]], blocks=4), ValueError, "use fewer blocks"),
    ],
)
def test_bad_input(client, ratings, data, error, message):
    with pytest.raises(error, match=message):
        RobustMF(2).fit(data(ratings), client=client)


def test_bad_settings(client, ratings):
    for setting, value in {"n_init": 3, "certify": True, "device": "cuda"}.items():
        with pytest.raises(ValueError, match=f"{setting} must be .* with client="):
            RobustMF(2, **{setting: value}).fit([ratings], client=client)
    for solver in ("mm", "varpro"):
        with pytest.raises(ValueError, match=f"solver='{solver}' needs all entries .* client="):
            RobustMF(2, solver=solver).fit([ratings], client=client)
    with pytest.raises(ValueError, match=r"rank must be an integer with client=.*rank=10"):
        RobustMF().fit([ratings], client=client)
    with pytest.raises(ValueError, match="rank must be an integer from 1 to 40"):
        RobustMF(41).fit([ratings], client=client)
    with pytest.raises(TypeError, match=r"dask\.distributed\.Client, got str"):
        RobustMF(2).fit([ratings], client="tcp://nowhere")
    with pytest.raises(ValueError, match="blocks must be"):
        Triplets([ratings], blocks=0)
    closed = distributed.Client(client.scheduler.address)
    closed.close()
    with pytest.raises(
        ValueError, match="client must be connected to a scheduler, but it is closed"
    ):
        RobustMF(2).fit([ratings], client=closed)


@pytest.mark.filterwarnings("ignore:The inplace keyword:DeprecationWarning")  # in Dask's reader
def test_row_groups_are_pieces(tmp_path, ratings, monkeypatch):
    ratings.to_parquet(tmp_path / "x.parquet", row_group_size=100)
    monkeypatch.setattr("robustmf.backends.dask.source.LOADING", LoadingOptions(5000))
    pieces, columns = pieces_of(Triplets(tmp_path))
    assert (columns.row, columns.col, columns.value) == ("user", "item", "rating")
    read = [piece.compute(scheduler="sync") for piece in pieces]
    assert 2 < len(read) < len(ratings) / 100
    assert pd.concat(read)["rating"].tolist() == ratings.rating.tolist()


def test_without_dask(monkeypatch, ratings):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'robustmf\[dask\]'"):
        RobustMF(2).fit([ratings], client=object())


def command(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})


def test_command_line(client, ratings, tmp_path):
    path = tmp_path / "ratings.parquet"
    model = tmp_path / "model.rmf"
    ratings.to_parquet(path, index=False)
    scheduler = client.scheduler.address
    done = command("fit", path, "--scheduler", scheduler, "--rank", 2, "-o", model, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["data"]["rows"], found["data"]["columns"], found["data"]["entries"]) == (
        60,
        40,
        len(ratings),
    )
    assert f"Cluster: {scheduler}" in done.stderr
    assert robustmf.load(model).row_ids_ == sorted(set(ratings.user))
    (tmp_path / "ratings.csv").write_text("a,b,1\n")
    for arguments, code, message in [
        ([tmp_path / "ratings.csv", "--local-workers", 1], 2, "must be a Parquet file or a folder"),
        ([path, "--local-workers", 1, "--scheduler", scheduler], 2, "not both"),
        (
            [path, "--scheduler", scheduler, "--report", tmp_path / "x.html"],
            2,
            "needs the entries in this process",
        ),
        ([path, "--scheduler", scheduler, "--row", "who"], 3, "'who' is not a column"),
        ([path, "--scheduler", "nowhere"], 2, "is not an address"),
        ([path, "--scheduler", scheduler], 2, "give a number, for example --rank 10"),
    ]:
        refused = command("fit", *arguments)
        assert refused.exit_code == code, refused.output
        assert message in refused.stderr.splitlines()[-1]


def test_ridges_learned_from_a_sample_apply_to_all_rows(client):
    """Clear signal and unequal rows: the rule for the ridge of factors has a multiplier per row."""
    rng = np.random.default_rng(7)
    mean = 3.5 + 0.4 * rng.normal(size=(200, 1)) + 0.5 * rng.normal(size=80)
    mean = mean + 0.5 * rng.normal(size=(200, 2)) @ rng.normal(size=(2, 80))
    stars = np.clip(np.rint(mean + 0.6 * rng.normal(size=mean.shape)), 1, 5)
    i, j = np.nonzero(rng.random(stars.shape) < 0.2)
    table = pd.DataFrame({"user": i, "item": j, "stars": stars[i, j]})
    model = RobustMF(3, random_state=0)
    model.fit([table[:1500], table[1500:]], row="user", col="item", value="stars", client=client)
    error = np.abs(model.predict(table["user"], table["item"]) - table["stars"]).mean()
    assert error < 0.7
