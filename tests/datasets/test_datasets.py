"""Loaders of small files in the official formats, downloads, and ``robustmf data``."""

from __future__ import annotations

import hashlib
import http.server
import os
import threading
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import xlwt
from typer.testing import CliRunner

from robustmf.cli import app
from robustmf.datasets import load_dinosaur, load_jester, load_movielens, load_netflix, load_yahoo
from robustmf.datasets.catalog import KNOWN, MOVIELENS, Archive, DataSet
from robustmf.datasets.finding import fetch, find_files, require_file
from robustmf.io.reading import MalformedFileError

SHARED = Path(os.environ.get("ROBUSTMF_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.fixture(autouse=True)
def no_user_data(monkeypatch, tmp_path):
    """Hide the data folder and the cache of the user."""
    monkeypatch.delenv("ROBUSTMF_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def put(base, files):
    for name, text in files.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return base


TITLES = "1::Toy Story (1995)::Comedy\n3::Les Misérables (1995)::Drama\n"
SMALL = {
    "100k": {
        "ml-100k/u.data": "7\t3\t5\t881250949\n2\t1\t1\t891717742\n",
        "ml-100k/u.item": (
            "1|Toy Story (1995)|01-Jan-1995||http://x|0|0\n"
            "3|Les Misérables (1995)|01-Jan-1995||x|0|0\n"
        ).encode("latin-1"),
    },
    "1m": {
        "ml-1m/ratings.dat": "7::3::5::978300760\n2::1::1::978302109\n",
        "ml-1m/movies.dat": TITLES.encode("latin-1"),
    },
    "10m": {
        "ml-10M100K/ratings.dat": "7::3::5::838985046\n2::1::0.5::838983525\n",
        "ml-10M100K/movies.dat": TITLES,
    },
    "latest-small": {
        "ml-latest-small/ratings.csv": (
            "userId,movieId,rating,timestamp\n7,3,5.0,964982703\n2,1,0.5,964981247\n"
        ),
        "ml-latest-small/movies.csv": (
            'movieId,title,genres\n1,Toy Story (1995),Comedy\n3,"Misérables, Les (1995)",Drama\n'
        ),
    },
}


@pytest.mark.parametrize("name", SMALL)
def test_movielens(tmp_path, monkeypatch, name):
    found = load_movielens(name, put(tmp_path, SMALL[name]), download=False)
    assert found.ratings.row_ids == [2, 7]
    assert found.ratings.column_ids == [1, 3]
    assert found.ratings.rows.values.tolist() == [0.5 if found.bounds[0] == 0.5 else 1.0, 5.0]
    assert found.bounds[1] == 5
    assert found.titles[0] == "Toy Story (1995)"
    assert "Misérables" in found.titles[1]
    assert found.name == MOVIELENS[name].name
    assert Path(found.source).is_file()
    monkeypatch.setenv("ROBUSTMF_DATA", str(tmp_path))
    assert load_movielens(name, dtype="float32").ratings.dtype == np.float32


def test_movielens_without_titles_and_with_wrong_ones(tmp_path):
    put(tmp_path, {"ml-100k/u.data": SMALL["100k"]["ml-100k/u.data"]})
    assert load_movielens("100k", tmp_path).titles is None
    put(tmp_path, {"ml-100k/u.item": "1|Toy Story|\nTitle without number\n"})
    with pytest.raises(
        MalformedFileError,
        match=r"u\.item, line 2: expected the number and the title of an item, got"
        " 'Title without number'",
    ):
        load_movielens("100k", tmp_path)


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        (
            "100k",
            "7\t4\tfive\t1\n",
            r"ml-100k/u\.data, line 3: value 'five' is not a finite number",
        ),
        ("100k", "7\t4\t5\n", r"ml-100k/u\.data, line 3: expected 4 fields, .* got 3"),
        ("1m", "7::4:5::1\n", r"ml-1m/ratings\.dat, line 3: expected 4 fields"),
        ("1m", "u7::4::5::1\n", r"ml-1m/ratings\.dat, line 3: row id 'u7' is not an integer"),
        (
            "10m",
            "7::4::9::1\n",
            r"ratings\.dat: ratings range from 0.5 to 9.0, but those of movielens-10m from 0\.5",
        ),
        ("latest-small", "7,3,4.0,5\n", r"ratings\.csv: duplicate entry \(row id 7, column id 3"),
    ],
)
def test_malformed_movielens_files_are_named(tmp_path, name, line, message):
    put(tmp_path, SMALL[name])
    path = next(tmp_path / one for one in SMALL[name] if "movies" not in one and "item" not in one)
    path.write_text(path.read_text() + line)
    with pytest.raises(ValueError, match=message):
        load_movielens(name, tmp_path)


def test_paper_filter_keeps_movies_whose_ratings_add_up_to_more_than_ten(tmp_path):
    ratings = {1: [5, 5, 1], 2: [5, 5], 4: [3, 3, 3, 1], 9: [3, 4, 4]}
    lines = [
        f"{user}::{movie}::{stars}::0"
        for movie, given in ratings.items()
        for user, stars in enumerate(given, 1)
    ]
    put(
        tmp_path,
        {
            "ml-1m/ratings.dat": "\n".join(lines) + "\n",
            "ml-1m/movies.dat": "1::A::x\n2::B::x\n4::C::x\n9::D::x\n",
        },
    )
    found = load_movielens("1m", tmp_path, paper_filter=True)
    assert found.ratings.column_ids == [1, 9]
    assert found.titles == ("A", "D")
    np.testing.assert_array_equal(
        found.ratings.to_sparse().toarray(), [[5, 3], [5, 4], [1, 4], [0, 0]]
    )
    with pytest.raises(ValueError, match="paper_filter needs name='1m'"):
        load_movielens("100k", tmp_path, paper_filter=True)
    with pytest.raises(ValueError, match=r"name must be one of .*, got name='2m'"):
        load_movielens("2m")


@pytest.mark.skipif(
    not (SHARED / "ml-latest-small").exists(),
    reason=f"MovieLens latest-small not found in {SHARED}; set ROBUSTMF_DATA",
)
def test_latest_small_has_its_official_size():
    found = load_movielens("latest-small", SHARED, download=False)
    assert found.ratings.shape == (610, 9724) == MOVIELENS["latest-small"].shape
    assert found.ratings.n_entries == 100_836 == MOVIELENS["latest-small"].n_ratings
    assert (found.ratings.rows.values.min(), found.ratings.rows.values.max()) == found.bounds
    assert all(found.titles)
    assert found.titles[found.ratings.column_ids.index(318)] == "Shawshank Redemption, The (1994)"


@pytest.mark.skipif(
    not (SHARED / "dinosaur").exists(),
    reason=f"Dinosaur tracks not found in {SHARED}; set ROBUSTMF_DATA",
)
def test_dinosaur_has_the_sizes_of_the_paper():
    for views, shape, density in (
        (0, (72, 4983), 9.16),
        (5, (72, 932), 17.87),
        (6, (72, 557), 20.55),
        (7, (72, 336), 23.10),
    ):
        tracks = load_dinosaur(views, SHARED)
        assert tracks.shape == shape
        assert 100 * tracks.n_entries / (shape[0] * shape[1]) == pytest.approx(density, abs=0.005)
    assert load_dinosaur(0, SHARED).n_entries == KNOWN["dinosaur"].n_ratings


def test_malformed_tracks_are_named(tmp_path):
    good = "\t".join(["1.5"] * 72)
    put(tmp_path, {"dinosaur/viff.xy": f"{good}\n{good[:-3]}x\n"})
    with pytest.raises(
        MalformedFileError, match=r"viff\.xy, line 2: could not convert string to float: 'x'"
    ):
        load_dinosaur(5, tmp_path)


def test_netflix_in_both_formats(tmp_path):
    together = put(
        tmp_path / "a",
        {
            "netflix/combined_data_1.txt": (
                "1:\n1488844,3,2005-09-06\n822109,5,2005-05-13\n2:\n1488844,4,2005-09-06\n"
            ),
            "netflix/combined_data_2.txt": "3:\n822109,1,2004-01-01\n",
            "netflix/movie_titles.csv": (
                '1,2003,Dinosaur Planet\n3,NULL,Character, a "quoted" one\n'
            ),
        },
    )
    apart = put(
        tmp_path / "b",
        {
            "netflix/training_set/mv_0000001.txt": (
                "1:\n1488844,3,2005-09-06\n822109,5,2005-05-13\n"
            ),
            "netflix/training_set/mv_0000002.txt": "2:\n1488844,4,2005-09-06\n",
            "netflix/training_set/mv_0000003.txt": "3:\n822109,1,2004-01-01\n",
        },
    )
    for base in (together, apart):
        found = load_netflix(base)
        assert found.ratings.row_ids == [822109, 1488844]
        assert found.ratings.column_ids == [1, 2, 3]
        np.testing.assert_array_equal(found.ratings.to_sparse().toarray(), [[5, 0, 1], [3, 4, 0]])
        assert found.ratings.dtype == np.float32
    assert load_netflix(together).titles == ("Dinosaur Planet", "", 'Character, a "quoted" one')
    (apart / "netflix/training_set/mv_0000002.txt").write_text("2:\n1488844;4;2005-09-06\n")
    with pytest.raises(
        MalformedFileError, match=r"mv_0000002\.txt, line 2: '1488844;4;2005-09-06' is not a rating"
    ):
        load_netflix(apart)


def test_yahoo_in_both_formats(tmp_path):
    cup = put(tmp_path / "a", {"yahoo/trainIdx2.txt": "0|2\n5\t90\n3\t0\n4|1\n5\t100\n"})
    found = load_yahoo(cup, dtype="float64")
    assert found.ratings.row_ids == [0, 4]
    assert found.ratings.column_ids == [3, 5]
    assert found.ratings.rows.values.tolist() == [0.0, 90.0, 100.0]
    assert found.bounds == (0, 100)
    plain = put(tmp_path / "b", {"yahoo/train_0.txt": "0\t5\t5\n0\t3\t1\n4\t5\t4\n"})
    assert load_yahoo(plain).ratings.rows.values.tolist() == [1.0, 5.0, 4.0]
    assert load_yahoo(plain).bounds == (1, 5)
    put(plain, {"yahoo/train_1.txt": "0\t5\tx\n"})
    with pytest.raises(
        ValueError,
        match=r"several files of ratings \(train_0\.txt, train_1\.txt\); choose one with files=",
    ):
        load_yahoo(plain)
    with pytest.raises(MalformedFileError, match=r"train_1\.txt, line 1: value 'x'"):
        load_yahoo(plain, files="train_1.txt")


def joke_lines():
    """Three users: one rated two jokes (one with 0), one all, one none."""
    first = [99.0] * 100
    second = list(np.linspace(-9.5, 9.5, 100).round(2))
    third = [99.0] * 100
    first[4] = 0.0
    first[7] = -9.95
    return [[2, *first], [100, *second], [0, *third]]


def test_jester_as_csv_and_as_excel(tmp_path):
    lines = joke_lines()
    put(
        tmp_path / "a",
        {"jester/jester-data-1.csv": "\n".join(",".join(map(str, line)) for line in lines) + "\n"},
    )
    book = xlwt.Workbook()
    sheet = book.add_sheet("jester")
    for i, line in enumerate(lines):
        for j, cell in enumerate(line):
            sheet.write(i, j, cell)
    (tmp_path / "b/jester").mkdir(parents=True)
    book.save(str(tmp_path / "b/jester/jester-data-1.xls"))
    for base in ("a", "b"):
        found = load_jester(1, tmp_path / base, download=False)
        assert found.ratings.shape == (3, 100)
        assert found.ratings.rows.counts.tolist() == [2, 100, 0]
        assert found.ratings.rows.values[:2].tolist() == [0.0, -9.95], "a rating of 0 is a rating"
        assert [found.ratings.column_ids[k] for k in found.ratings.rows.indices[:2]] == [5, 8]
    lines[1][0] = 99
    put(
        tmp_path / "c",
        {
            "jester/jester-data-2.csv": "\n".join(",".join(map(str, line)) for line in lines[:2])
            + "\n1,2\n"
        },
    )
    with pytest.raises(
        MalformedFileError,
        match=r"jester-data-2\.csv, line 2: expected 99 ratings from -10 to 10, got 100",
    ):
        load_jester(2, tmp_path / "c")
    put(tmp_path / "c", {"jester/jester-data-2.csv": "1,2\n"})
    with pytest.raises(MalformedFileError, match=r"line 1: expected 101 numbers, got 2"):
        load_jester(2, tmp_path / "c")
    put(tmp_path / "c", {"jester/jester-data-3.xls": "no Excel"})
    with pytest.raises(MalformedFileError, match=r"jester-data-3\.xls: not an Excel file"):
        load_jester(3, tmp_path / "c")
    with pytest.raises(ValueError, match="part must be 1, 2 or 3, got part=4"):
        load_jester(4)


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (
            partial(load_movielens, "1m", download=False),
            r"ratings\.dat not found, searched in .*/here, .*robustmf: get movielens-1m from "
            r"https://grouplens\.org/datasets/movielens/1m/ and put ml-1m/ratings\.dat "
            r"\(or the archive ml-1m\.zip as it is\) into .*/here",
        ),
        (
            load_netflix,
            r"combined_data_1\.txt … combined_data_4\.txt not found, "
            r".* from https://www\.kaggle\.com",
        ),
        (
            load_yahoo,
            r"trainIdx2\.txt not found, .* put yahoo/trainIdx2\.txt into .*/here, or pass folder= "
            r"or set ROBUSTMF_DATA",
        ),
        (
            partial(load_jester, 2, download=False),
            r"jester-data-2\.xls not found, .*jester_dataset_1_2\.zip",
        ),
        (load_dinosaur, r"viff\.xy not found, searched in .*data-mview"),
    ],
)
def test_missing_files_are_named_with_instructions(tmp_path, load, message):
    with pytest.raises(FileNotFoundError, match=message):
        load(folder=tmp_path / "here")


@pytest.fixture
def server(tmp_path):
    """A local HTTP server for the files of a folder."""
    folder = tmp_path / "served"
    folder.mkdir()

    class SilentHandler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SilentHandler, directory=str(folder))
    ) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield folder, f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def archive_of(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def data_set(url, checksum):
    return DataSet(
        "toy",
        "toy",
        ("r.dat",),
        "https://nowhere.example",
        (1, 1),
        1,
        "free",
        (Archive(f"{url}/toy.zip", f"sha256:{checksum}"),),
    )


def test_download_is_verified_stored_and_not_repeated(server, tmp_path):
    folder, url = server
    toy = data_set(
        url, archive_of(folder / "toy.zip", {"toy/r.dat": "1::2::3\n", "../evil.txt": "x"})
    )
    with pytest.raises(FileNotFoundError, match=r"r\.dat not found"):
        require_file(toy, "r.dat", tmp_path / "here")
    source = require_file(toy, "r.dat", tmp_path / "here", download=True)
    assert list(source.text()) == ["1::2::3\n"]
    assert sorted(one.name for one in (tmp_path / "here").iterdir()) == ["toy.zip"], (
        "nothing is extracted"
    )
    (folder / "toy.zip").unlink()
    assert require_file(toy, "r.dat", tmp_path / "here", download=True) == source
    assert fetch(toy, toy.archives[0], tmp_path / "here") == source.path
    (tmp_path / "here/toy").mkdir()
    (tmp_path / "here/toy/r.dat").write_text("4::5::6\n")
    assert find_files(toy, ("r.dat",), tmp_path / "here")[0].path.name == "r.dat", (
        "a plain file takes precedence over the archive"
    )


def test_damaged_download_is_refused(server, tmp_path):
    folder, url = server
    archive_of(folder / "toy.zip", {"toy/r.dat": "1::2::3\n"})
    toy = data_set(url, "0" * 64)
    with pytest.raises(
        ValueError, match=r"toy\.zip has changed or was damaged during the download"
    ):
        require_file(toy, "r.dat", tmp_path / "here", download=True)
    assert not (tmp_path / "here/toy.zip").exists()
    (tmp_path / "here").mkdir(exist_ok=True)
    (tmp_path / "here/toy.zip").write_bytes((folder / "toy.zip").read_bytes())
    with pytest.raises(
        ValueError,
        match=r"toy\.zip is not the official archive: its sha256 is .*; delete it and download",
    ):
        require_file(toy, "r.dat", tmp_path / "here", download=True)


def test_failed_download_gives_instructions(server, tmp_path):
    _, url = server
    toy = data_set(url, "0" * 64)
    with pytest.raises(
        FileNotFoundError,
        match=r"toy\.zip not found, .* get toy from https://nowhere.* put toy\.zip into .*/here, "
        r".*404",
    ):
        require_file(toy, "r.dat", tmp_path / "here", download=True)
    closed = data_set("http://127.0.0.1:9", "0" * 64)
    with pytest.raises(FileNotFoundError, match=r"downloading http://127\.0\.0\.1:9/toy\.zip: "):
        require_file(closed, "r.dat", tmp_path / "here", download=True)


def run(*arguments):
    return CliRunner().invoke(app, ["data", *map(str, arguments)], env={"COLUMNS": "200"})


def test_list_and_info(tmp_path):
    put(tmp_path, SMALL["1m"])
    listed = run("list", "--folder", tmp_path)
    assert listed.exit_code == 0, listed.output
    assert all(name in listed.output for name in KNOWN)
    assert "ml-1m/ratings.dat" in listed.output
    assert "robustmf data get movielens-10m" in listed.output
    described = run("info", "movielens-1m", "--folder", tmp_path)
    assert described.exit_code == 0, described.output
    assert "official size │ 6,040 x 3,706, 1,000,209 entries" in described.output
    assert "2 x 2, 2 entries, 50.00 % observed" in described.output
    assert "1 to 5, mean 3" in described.output
    assert "by hand" in run("info", "netflix", "--folder", tmp_path).output
    (tmp_path / "ml-1m/ratings.dat").write_text("1::2::x::3\n")
    broken = run("info", "movielens-1m", "--folder", tmp_path)
    assert broken.exit_code == 3
    assert isinstance(broken.exception, SystemExit), "one line, no traceback"
    assert "line 1: value 'x'" in broken.output
    assert run("info", "movielens-2m").exit_code == 2
    assert "by hand" in run("info", "netflix", "--folder", tmp_path).output
    assert run("get", "netflix", "--folder", tmp_path).exit_code == 2


def test_get(server, tmp_path, monkeypatch):
    folder, url = server
    monkeypatch.setitem(
        KNOWN, "toy", data_set(url, archive_of(folder / "toy.zip", {"toy/r.dat": "1::2::3\n"}))
    )
    got = run("get", "toy", "--folder", tmp_path / "here")
    assert got.exit_code == 0, got.output
    assert "toy.zip (sha256 checked)" in got.output
    (tmp_path / "here/toy.zip").write_bytes(b"damaged")
    assert "damaged: " in run("list", "--folder", tmp_path / "here").output
    again = run("get", "toy", "--folder", tmp_path / "here")
    assert again.exit_code == 1
    assert "is not the official archive" in again.output
