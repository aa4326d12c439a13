"""The known data sets: origin, size, terms and names of their files."""

from __future__ import annotations

from dataclasses import dataclass

_GROUPLENS = "https://files.grouplens.org/datasets/movielens"
_JESTER = "https://eigentaste.berkeley.edu/dataset"


@dataclass(frozen=True)
class Archive:
    """A file to download and its checksum, "sha256:…"."""

    url: str
    checksum: str

    def __post_init__(self) -> None:
        if not self.checksum.startswith("sha256:"):
            raise ValueError(f"checksum must begin with 'sha256:', got {self.checksum!r}")

    @property
    def file_name(self) -> str:
        """The last part of the URL."""
        return self.url.rsplit("/", 1)[1]


@dataclass(frozen=True)
class DataSet:
    """Description of a data set.

    Attributes
    ----------
    name : str
        Name on the command line.
    folder : str
        Folder of its files within the data folder, named as in the official archive.
    files : tuple of str
        Names or patterns of the files of ratings.
    home : str
        Web page of the data set.
    shape : tuple of int
        Official number of rows and columns.
    n_ratings : int
        Official number of entries.
    terms : str
        Terms of use, in short.
    archives : tuple of Archive
        Files to download; empty if the terms require a download by hand.
    """

    name: str
    folder: str
    files: tuple[str, ...]
    home: str
    shape: tuple[int, int]
    n_ratings: int
    terms: str
    archives: tuple[Archive, ...] = ()


_MOVIELENS_TERMS = "research; no redistribution without permission, no commercial use"

#: GroupLens publishes only MD5 sums; these are the sums that several independent projects pin.
MOVIELENS = {
    "100k": DataSet(
        name="movielens-100k",
        folder="ml-100k",
        files=("u.data",),
        home="https://grouplens.org/datasets/movielens/100k/",
        shape=(943, 1682),
        n_ratings=100_000,
        terms=_MOVIELENS_TERMS,
        archives=(
            Archive(
                f"{_GROUPLENS}/ml-100k.zip",
                "sha256:50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
            ),
        ),
    ),
    "1m": DataSet(
        name="movielens-1m",
        folder="ml-1m",
        files=("ratings.dat",),
        home="https://grouplens.org/datasets/movielens/1m/",
        shape=(6040, 3706),
        n_ratings=1_000_209,
        terms=_MOVIELENS_TERMS,
        archives=(
            Archive(
                f"{_GROUPLENS}/ml-1m.zip",
                "sha256:a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
            ),
        ),
    ),
    "10m": DataSet(
        name="movielens-10m",
        folder="ml-10M100K",
        files=("ratings.dat",),
        home="https://grouplens.org/datasets/movielens/10m/",
        shape=(69_878, 10_677),
        n_ratings=10_000_054,
        terms=_MOVIELENS_TERMS,
        archives=(
            Archive(
                f"{_GROUPLENS}/ml-10m.zip",
                "sha256:813c411ccb6122564edfe752e7f80c4dcc5aa25fa94c93622f6877a7ba252862",
            ),
        ),
    ),
    "latest-small": DataSet(
        name="movielens-latest-small",
        folder="ml-latest-small",
        files=("ratings.csv",),
        home="https://grouplens.org/datasets/movielens/latest/",
        shape=(610, 9724),
        n_ratings=100_836,
        terms="redistribution under the same terms, no commercial use",
        archives=(
            Archive(
                f"{_GROUPLENS}/ml-latest-small.zip",
                "sha256:696d65a3dfceac7c45750ad32df2c259311949efec81f0f144fdfb91ebc9e436",
            ),
        ),
    ),
}

NETFLIX = DataSet(
    name="netflix",
    folder="netflix",
    files=("combined_data_*.txt", "mv_*.txt"),
    home="https://www.kaggle.com/datasets/netflix-inc/netflix-prize-data",
    shape=(480_189, 17_770),
    n_ratings=100_480_507,
    terms="Netflix Prize rules: research, no redistribution",
)

YAHOO = DataSet(
    name="yahoo",
    folder="yahoo",
    files=("trainIdx2.txt", "trainIdx1.txt", "*.txt"),
    home="https://webscope.sandbox.yahoo.com (C15: KDD Cup 2011, track 2)",
    shape=(249_012, 296_111),
    n_ratings=62_551_438,
    terms="Yahoo Webscope: research, by application, no redistribution",
)

DINOSAUR = DataSet(
    name="dinosaur",
    folder="dinosaur",
    files=("viff.xy",),
    home="https://www.robots.ox.ac.uk/~vgg/data/data-mview.html",
    shape=(72, 4983),
    n_ratings=32_864,
    terms="research data of the Visual Geometry Group, Oxford (sequence from the University of"
    " Hannover)",
)

#: The owner publishes no checksums; these are equal for two independent downloads.
JESTER = DataSet(
    name="jester",
    folder="jester",
    files=("jester-data-1.xls", "jester-data-1.csv"),
    home=f"{_JESTER}/",
    shape=(24_983, 100),
    n_ratings=1_810_455,
    terms="research, with reference to Goldberg et al., Eigentaste (2001)",
    archives=(
        Archive(
            f"{_JESTER}/jester_dataset_1_1.zip",
            "sha256:cb7841756ded125b15f3d95c9f8241224065e96354c132a46ae4214deeab7615",
        ),
        Archive(
            f"{_JESTER}/jester_dataset_1_2.zip",
            "sha256:4d312fd824d8c8cb2c9c952a7b1fb7c00d1f5fd3ece370f7285aa701d371748b",
        ),
        Archive(
            f"{_JESTER}/jester_dataset_1_3.zip",
            "sha256:7f548d3762d3506cf7cd37d8cb9e3adb67984a7da7aa2d2096d5e0b1b884758d",
        ),
    ),
)

#: All data sets by name.
KNOWN = {one.name: one for one in (*MOVIELENS.values(), NETFLIX, YAHOO, JESTER, DINOSAUR)}
