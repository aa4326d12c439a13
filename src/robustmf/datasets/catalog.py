"""The known data sets: where they come from, what they hold, what their files are called."""

from __future__ import annotations

from dataclasses import dataclass

_GROUPLENS = "https://files.grouplens.org/datasets/movielens"
_JESTER = "https://eigentaste.berkeley.edu/dataset"


@dataclass(frozen=True)
class Archive:
    """A file to download, and the checksum it must have ("md5:…" or "sha256:…")."""

    url: str
    checksum: str

    @property
    def file_name(self) -> str:
        """The last part of the address."""
        return self.url.rsplit("/", 1)[1]


@dataclass(frozen=True)
class DataSet:
    """A data set that a loader knows.

    Attributes
    ----------
    name : str
        As the command line calls it.
    folder : str
        Folder of its files within the data folder, named as the official archive names it.
    files : tuple of str
        Names or patterns of its files of ratings.
    home : str
        The page to get it from.
    shape, n_ratings
        Official size.
    terms : str
        What one may do with it, in short.
    archives : tuple of Archive
        What can be downloaded; empty where the terms or the owner demand to get it by hand.
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

#: Checksums of 100K, 1M and 10M as GroupLens publishes them beside the archives (.md5); that of latest-small as several projects pin it.
MOVIELENS = {
    "100k": DataSet(
        "movielens-100k", "ml-100k", ("u.data",), "https://grouplens.org/datasets/movielens/100k/", (943, 1682), 100_000,
        _MOVIELENS_TERMS, (Archive(f"{_GROUPLENS}/ml-100k.zip", "md5:0e33842e24a9c977be4e0107933c0723"),),
    ),
    "1m": DataSet(
        "movielens-1m", "ml-1m", ("ratings.dat",), "https://grouplens.org/datasets/movielens/1m/", (6040, 3706), 1_000_209,
        _MOVIELENS_TERMS, (Archive(f"{_GROUPLENS}/ml-1m.zip", "md5:c4d9eecfca2ab87c1945afe126590906"),),
    ),
    "10m": DataSet(
        "movielens-10m", "ml-10M100K", ("ratings.dat",), "https://grouplens.org/datasets/movielens/10m/", (69_878, 10_677), 10_000_054,
        _MOVIELENS_TERMS, (Archive(f"{_GROUPLENS}/ml-10m.zip", "md5:ce571fd55effeba0271552578f2648bd"),),
    ),
    "latest-small": DataSet(
        "movielens-latest-small", "ml-latest-small", ("ratings.csv",), "https://grouplens.org/datasets/movielens/latest/", (610, 9724),
        100_836, "redistribution under the same terms, no commercial use",
        (Archive(f"{_GROUPLENS}/ml-latest-small.zip", "sha256:696d65a3dfceac7c45750ad32df2c259311949efec81f0f144fdfb91ebc9e436"),),
    ),
}  # fmt: skip

NETFLIX = DataSet(
    "netflix", "netflix", ("combined_data_*.txt", "mv_*.txt"), "https://www.kaggle.com/datasets/netflix-inc/netflix-prize-data",
    (480_189, 17_770), 100_480_507, "Netflix Prize rules: research, no redistribution",
)  # fmt: skip

YAHOO = DataSet(
    "yahoo", "yahoo", ("trainIdx2.txt", "trainIdx1.txt", "*.txt"), "https://webscope.sandbox.yahoo.com (C15: KDD Cup 2011, track 2)",
    (249_012, 296_111), 62_551_438, "Yahoo Webscope: research, by application, no redistribution",
)  # fmt: skip

DINOSAUR = DataSet(
    "dinosaur", "dinosaur", ("viff.xy",), "https://www.robots.ox.ac.uk/~vgg/data/data-mview.html", (72, 4983), 32_864,
    "research data of the Visual Geometry Group, Oxford (sequence from the University of Hannover)",
)  # fmt: skip

#: The owner publishes no checksums; on these, two independent downloads agree.
JESTER = DataSet(
    "jester", "jester", ("jester-data-1.xls", "jester-data-1.csv"), f"{_JESTER}/", (24_983, 100), 1_810_455,
    "research, with reference to Goldberg et al., Eigentaste (2001)",
    (
        Archive(f"{_JESTER}/jester_dataset_1_1.zip", "sha256:cb7841756ded125b15f3d95c9f8241224065e96354c132a46ae4214deeab7615"),
        Archive(f"{_JESTER}/jester_dataset_1_2.zip", "sha256:4d312fd824d8c8cb2c9c952a7b1fb7c00d1f5fd3ece370f7285aa701d371748b"),
        Archive(f"{_JESTER}/jester_dataset_1_3.zip", "sha256:7f548d3762d3506cf7cd37d8cb9e3adb67984a7da7aa2d2096d5e0b1b884758d"),
    ),
)  # fmt: skip

KNOWN = {one.name: one for one in (*MOVIELENS.values(), NETFLIX, YAHOO, JESTER, DINOSAUR)}
