"""Models whose factors are Parquet shards."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from functools import partial

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import NAMES, Own, in_pieces

from robustmf import Observed, RobustMF
from robustmf.backends.biases import BiasModel
from robustmf.backends.dask import ShardedModel, Triplets, outlier_scores, recommend
from robustmf.backends.dask.matrix import Block, Matrix
from robustmf.distributed import shards
from robustmf.exceptions import DuplicateEntryError, ModelFileError, UnknownIdsWarning
from robustmf.io.model_file import read, write


@pytest.mark.parametrize("bias", [True, False])
def test_factors_as_shards(client, ratings, tmp_path, bias, monkeypatch):
    data = in_pieces(ratings)
    folder = tmp_path / "out"
    settings = {"bias": bias, "random_state": 0, "bounds": (-4.0, 4.0)}
    whole = RobustMF(2, **settings).fit(data, client=client)
    with monkeypatch.context() as patched:
        patched.setattr(
            Matrix,
            "_ordering",
            property(lambda _: pytest.fail("all ids were gathered on the client")),
        )
        model = RobustMF(2, **settings).fit(Triplets(data, shards=folder, **NAMES), client=client)
    assert len(model.row_factors_) == 0
    rows = pd.read_parquet(sorted((tmp_path / "out").glob("rows-*.parquet"))).sort_values("id")
    assert rows.id.tolist() == whole.row_ids_
    assert np.array_equal(rows[["factor0", "factor1"]].to_numpy(), whole.row_factors_)
    assert rows.entries.tolist() == whole.entries_["row_counts"].tolist()
    assert ("bias" in rows) == bias
    assert not bias or np.array_equal(rows.bias.to_numpy(), whole.row_bias_)
    for function in (
        lambda: model.predict([1], [1]),
        lambda: model.recommend([1]),
        lambda: model.save(tmp_path / "m.rmf"),
        model.audit,
    ):
        with pytest.raises(
            ValueError, match=r"wrote them as shards; .*robustmf\.backends\.dask\.ShardedModel"
        ):
            function()
    assert_same_predictions(whole, ShardedModel(folder), ratings)


def assert_same_predictions(whole, model, ratings):
    """Compare with a model on the client, also for unknown ids."""
    frame = dd.from_pandas(ratings, npartitions=3)
    odd = pd.DataFrame(
        {"user": ["u001", "nobody", "nobody", "u002"], "item": [7, 14, 1, 1]}, index=[3, 5, 8, 9]
    )
    for pairs in (ratings, odd, odd.iloc[:0]):
        found = model.predict(dd.from_pandas(pairs, npartitions=2), row="user", col="item")
        assert found.dtype == whole.row_factors_.dtype
        found = found.compute()
        assert found.index.equals(pairs.index)
        with warnings.catch_warnings():  # of unknown ids
            warnings.simplefilter("ignore", UnknownIdsWarning)
            expected = whole.predict(pairs.user.tolist(), pairs.item.tolist())
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    scores = model.outlier_scores(frame, **NAMES).compute()
    np.testing.assert_allclose(scores, outlier_scores(whole, frame, **NAMES).compute(), rtol=1e-6)
    for function in (model.outlier_scores, partial(outlier_scores, whole)):
        gap = ratings.assign(rating=ratings.rating.where(ratings.index != 3))
        found = function(dd.from_pandas(gap, npartitions=1), **NAMES).compute()
        assert found.index.equals(ratings.index)
        assert found.index[found.isna()].tolist() == [3]  # a line without a value is no entry
        with pytest.raises(DuplicateEntryError, match="duplicate entry at row 'u"):
            function(
                dd.from_pandas(pd.concat([ratings, ratings[:1]], ignore_index=True), npartitions=1),
                **NAMES,
            ).compute()
    with pytest.raises(ValueError, match="2 entries in rows or columns that the fit did not know"):
        model.outlier_scores(
            dd.from_pandas(odd.iloc[1:3].assign(rating=1.0), npartitions=1), **NAMES
        ).compute()
    users = dd.from_pandas(pd.DataFrame({"user": ["u003", "u007", "u011"]}), npartitions=2)
    for more in ({}, {"seen": frame, "col": "item"}):
        mine, theirs = (
            one.compute().sort_values(["user", "position"], ignore_index=True)
            for one in (
                model.recommend(users, 5, row="user", **more),
                recommend(whole, users, 5, row="user", **more),
            )
        )
        pd.testing.assert_frame_equal(mine, theirs, rtol=1e-12)
    unknown = dd.from_pandas(odd.iloc[1:2], npartitions=1)
    if whole.has_bias_:
        best = model.recommend(unknown, 3, row="user").compute()
        with pytest.warns(UnknownIdsWarning, match="'nobody'"):
            expected = whole.recommend("nobody", 3, exclude_seen=False)[0]
        assert best.item.tolist() == expected.tolist()
        mixed = dd.from_pandas(pd.DataFrame({"user": ["nobody", "u003"]}), npartitions=1)
        found = model.recommend(mixed, 3, row="user").compute().prediction
        with pytest.warns(UnknownIdsWarning, match="'nobody'"):
            expected = whole.recommend(["nobody", "u003"], 3, exclude_seen=False)[1]
        np.testing.assert_allclose(found, expected.ravel(), rtol=1e-12)
    else:
        assert model.recommend(unknown, 3, row="user").compute().empty
    with pytest.raises(TypeError, match="ids were of type float in fit, got '7'"):
        model.predict(
            dd.from_pandas(odd.assign(item="7"), npartitions=1), row="user", col="item"
        ).compute()


def test_damaged_shards(client, ratings, tmp_path):
    folder = tmp_path / "out"
    mixed = {name: ratings[name].tolist() for name in ("item", "rating")} | {
        "user": [(int(u[1:]), "x") for u in ratings.user]
    }
    with pytest.raises(TypeError, match="cannot be written as Parquet shards"):
        RobustMF(2).fit(Triplets([mixed], shards=folder, **NAMES), client=client)
    RobustMF(2, random_state=0).fit(
        Triplets([ratings], shards=folder, blocks=2, **NAMES), client=client
    )
    pairs = dd.from_pandas(ratings, npartitions=1)
    shard = folder / "columns-00001.parquet"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:9] + bytes([whole[9] ^ 1]) + whole[10:])
    with pytest.raises(ModelFileError, match=r"columns-00001\.parquet: has another checksum"):
        ShardedModel(folder).predict(pairs, row="user", col="item").compute()
    shard.write_bytes(whole[:-1])
    with pytest.raises(ModelFileError, match=r"columns-00001\.parquet: has another size"):
        ShardedModel(folder)
    shard.unlink()
    with pytest.raises(ModelFileError, match=r"columns-00001\.parquet: is missing"):
        ShardedModel(folder)
    shard.write_bytes(whole)
    manifest = folder / "shards.rmf"
    assert_damaged_manifests_are_refused(manifest)
    manifest.write_bytes(manifest.read_bytes()[:-3])
    with pytest.raises(ModelFileError, match=r"shards\.rmf: is damaged .*; fit again"):
        ShardedModel(folder)
    manifest.unlink()
    with pytest.raises(ModelFileError, match=r"shards\.rmf: does not exist"):
        ShardedModel(folder)


def assert_damaged_manifests_are_refused(manifest):
    """Manifests with a valid checksum and other content are refused; the original is restored."""
    content = manifest.read_bytes()
    saved = read(manifest)
    facts = saved.parameters
    rows, columns = facts["files"]
    noise = facts["noise"]

    def with_facts(**changed):
        return replace(saved, parameters=facts | changed)

    def with_file(file):
        return with_facts(files=([file, *rows[1:]], columns))

    without_shape = {name: value for name, value in facts.items() if name != "shape"}
    bad = [
        (replace(saved, parameters=without_shape), "'shape'"),
        (with_facts(shape="60"), "shape='60'"),
        (with_facts(shape=(60, "40")), r"shape=\(60, '40'\)"),
        (with_facts(id_types=(["str"],)), r"id_types=\(\['str'\],\)"),
        (with_facts(other=1), "other"),
        (with_facts(files=(rows, [])), "no rows or no columns"),
        (with_facts(noise=noise | {"of_rows": {}}), "moments"),
        (with_facts(noise=noise | {"of_rows": noise["of_rows"] | {"axes": np.ones(1)}}), "noise="),
        (with_facts(noise=noise | {"inflation": "1"}), "noise="),
        (with_facts(noise=noise | {"of_rows": noise["of_rows"] | {"reg": 1e9}}), "noise="),
        (with_file({}), "'name'"),
        (with_file("x"), "must be a mapping"),
        (with_file(rows[0] | {"rows": "1"}), "rows='1'.* is not a shard"),
        (
            with_file(rows[0] | {"name": "../rows-00000.parquet"}),
            "'../rows-00000.parquet'.* is not a shard",
        ),
        (replace(saved, kind="RobustMF"), "is not the manifest of shards"),
        (replace(saved, state=saved.state | {"reg_": "1"}), "reg_ is missing or of the wrong kind"),
        (replace(saved, state={}), "row_factors_"),
    ]
    for one, message in bad:
        write(manifest, one)
        with pytest.raises(
            ModelFileError, match=rf"shards\.rmf: is damaged .*{message}.*; fit again"
        ):
            ShardedModel(manifest.parent)
    manifest.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"shards\.rmf: cannot be read \(Not a directory\)"):
        ShardedModel(manifest)


def test_relative_folder_and_replaced_shards(client, ratings, tmp_path, monkeypatch):
    """A relative path is the client's; files of an earlier fit with more blocks are removed."""
    monkeypatch.chdir(tmp_path)
    ratings.to_parquet("ratings.parquet")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "rows-1.parquet").touch()  # other files stay
    for blocks in (3, 2):
        RobustMF(2, random_state=0).fit(
            Triplets("ratings.parquet", shards="out", blocks=blocks, **NAMES), client=client
        )
        names = [f"{side}-{k:05}.parquet" for side in ("columns", "rows") for k in range(blocks)]
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
            [*names, "shards.rmf", "rows-1.parquet"]
        )
        found = (
            ShardedModel("out")
            .predict(dd.from_pandas(ratings, npartitions=1), row="user", col="item")
            .compute()
        )
        assert len(found) == len(ratings)


def test_shards_of_a_user_defined_loss(client, ratings, tmp_path):
    """Their manifest is a data file, which cannot contain the code of the loss."""
    triplets = Triplets(in_pieces(ratings), shards=tmp_path / "out", **NAMES)
    RobustMF(2, loss=Own(), reg=0.5, random_state=0).fit(triplets, client=client)
    model = ShardedModel(tmp_path / "out")
    assert (model.manifest.loss, model.manifest.theta) == ("own", 0.5)
    pairs = dd.from_pandas(ratings, npartitions=2)
    found = model.predict(pairs, row="user", col="item").compute()
    assert np.median(np.abs(found - ratings.rating)) < 0.2


def test_temporary_names_of_shards_are_unique(tmp_path, monkeypatch):
    """Tasks on two machines may have the same process id."""
    block = Block(
        Observed.from_dense(np.ones((2, 1))), None, 0, np.zeros(1, np.int64), [None], None
    )
    names = []
    move = os.replace
    monkeypatch.setattr(os, "replace", lambda old, new: (names.append(str(old)), move(old, new)))
    for _ in range(2):
        shards._write(
            np.ones((2, 1)),
            [1, 2],
            block,
            str(tmp_path / "rows-00000.parquet"),
            BiasModel(None, 1.0),
        )
    assert len(set(names)) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["rows-00000.parquet"]
