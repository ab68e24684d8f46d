"""Read a MovieLens release, once per process: ratings by user, features by movie."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._shared.array_types import Counts, Flags, Floats
from .._shared.extras import import_extra
from ..errors import InvalidInput

if TYPE_CHECKING:
    import pandas


# Movies, ratings and tags of a release; tags are optional.
FORMATS = (("movies.csv", "ratings.csv", "tags.csv"), ("movies.dat", "ratings.dat", "tags.dat"))
POSITIVE = 3  # a rating above it is a positive
WORD = r"[^\W_]{2,}"
NO_GENRES = "(no genres listed)"
SHORTEST = 1e-9  # a movie that is shorter than this after the reduction has no direction


@dataclass(frozen=True, eq=False)
class Ratings:
    """The words of each movie, and the ratings; a user's begin at starts[user]."""

    documents: list[str]
    users: NDArray[np.int32]  # ids
    starts: Counts
    movies: NDArray[np.int32]  # the movie's place among the documents, -1 where it has none
    positive: Flags


@dataclass(frozen=True, eq=False)
class Features:
    """A row of length 1 for each movie with words; `row` has the row of each movie, -1 for none."""

    table: Floats
    row: Counts
    n_words: int
    explained_variance: float


class ReleaseFile(NamedTuple):
    """A file of a release, by itself or a member of an archive, with the time and size of either.

    While they stay the same, it need not be read again.
    """

    path: str
    member: str | None
    changed: int
    size: int

    @classmethod
    def find(cls, path: Path, member: str | None = None) -> ReleaseFile:
        """Return a file as it is now."""
        found = path.stat()
        return cls(str(path.resolve()), member, found.st_mtime_ns, found.st_size)

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return Path(self.member or self.path).name

    def __str__(self) -> str:
        return f"{self.member} in {self.path}" if self.member else self.path

    @contextlib.contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the file for reading; an archive that is damaged there is reported by its name."""
        try:
            if self.member is None:
                with Path(self.path).open("rb") as file:
                    yield file
            else:
                with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as file:
                    yield file
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise InvalidInput(f"{self} is damaged: {error}. Get the archive again") from None


Release = tuple[ReleaseFile, ReleaseFile, ReleaseFile | None]  # movies, ratings and tags
# A sweep makes the problem in many threads: one reads the files while the others wait.
LOADING = threading.Lock()


def load_release(
    folder: str | os.PathLike[str], dim: int, standardise: bool = False
) -> tuple[Ratings, Features]:
    """Load ratings and features of a MovieLens release; a process reads unchanged files once."""
    release = find_movielens_files(folder)
    with LOADING:
        return load_ratings(release), load_features(release, dim, standardise)


@functools.lru_cache(maxsize=2)
def load_ratings(release: Release) -> Ratings:
    """Read movies, ratings and tags from MovieLens files."""
    movies, ratings, tags = release
    listed = read_columns(movies, {"movieId": "int32", "genres": "str"})
    listed = listed.drop_duplicates("movieId")
    tagged = None if tags is None else read_columns(tags, {"movieId": "int32", "tag": "str"})
    documents = collect_documents(listed, tagged)
    return group_ratings_by_user(ratings, listed["movieId"], documents)


@functools.lru_cache(maxsize=4)
def load_features(release: Release, dim: int, standardise: bool) -> Features:
    """Compute the features of the movies in MovieLens files."""
    return compute_features(load_ratings(release).documents, dim, standardise)


def group_ratings_by_user(
    file: ReleaseFile, movie_ids: pandas.Series, documents: list[str]
) -> Ratings:
    """Read the file of ratings, user after user; if a movie was rated twice, the later counts."""
    rows = read_columns(file, {"userId": "int32", "movieId": "int32", "rating": "float32"})
    if not len(rows):
        raise InvalidInput(f"{file} holds no rating")
    user, movie, rating = (rows[name].to_numpy() for name in rows)
    if np.isnan(rating).any():
        raise InvalidInput(
            f"{file} has no rating in row {int(np.isnan(rating).argmax()) + 1} of its ratings"
        )
    order = order_by_user_and_movie(user, movie)
    pandas = import_extra("pandas", "datasets", "MovieLensProblem")
    users, starts = np.unique(user[order], return_index=True)
    return Ratings(
        documents=documents,
        users=users,
        starts=np.append(starts, len(user[order])),
        movies=pandas.Index(movie_ids).get_indexer(movie[order]).astype(np.int32),
        positive=rating[order] > POSITIVE,
    )


def order_by_user_and_movie(user: NDArray[np.int32], movie: NDArray[np.int32]) -> Any:
    """Return the index that sorts a file's ratings by user and movie, the last of a pair only.

    Most releases are sorted already: then it is a slice, which copies nothing.
    """
    if ((np.diff(user) > 0) | ((np.diff(user) == 0) & (np.diff(movie) > 0))).all():
        return slice(None)
    order = np.lexsort((movie, user))
    same = (np.diff(user[order]) == 0) & (np.diff(movie[order]) == 0)
    return order[np.append(~same, True)]


def collect_documents(movies: pandas.DataFrame, tags: pandas.DataFrame | None) -> list[str]:
    """Return each movie's words in the files: its genres, and every tag that a user gave it."""
    words = {
        movie: [] if genres == NO_GENRES else [genres]
        for movie, genres in pair_movies_with_words(movies)
    }
    for movie, tag in [] if tags is None else pair_movies_with_words(tags):
        words.get(movie, []).append(tag)  # a movie that is not in the list can't be an arm
    return [" ".join(each) for each in words.values()]


def pair_movies_with_words(table: pandas.DataFrame) -> Iterator[tuple[int, str]]:
    """Read pairs of a movie's id and its genres, or a tag, from the MovieLens files."""
    return zip(*(table[name].tolist() for name in table), strict=True)


def compute_features(documents: list[str], dim: int, standardise: bool) -> Features:
    """Compute TF-IDF of the words in MovieLens files, reduced to dim by an SVD, of length 1.

    With `standardise` each column of the reduced features first gets mean 0 and variance 1.
    """
    text = import_extra("sklearn.feature_extraction.text", "datasets", "MovieLensProblem")
    decomposition = import_extra("sklearn.decomposition", "datasets", "MovieLensProblem")
    try:
        weights = text.TfidfVectorizer(token_pattern=WORD).fit_transform(documents)
    except ValueError as error:  # no word at all
        raise InvalidInput(
            f"the movies can't be described by words of their genres and tags: {error}"
        ) from None
    worded = np.flatnonzero(np.diff(weights.indptr))
    if dim >= min(len(worded), weights.shape[1]):
        raise InvalidInput(
            f"dim={dim} must be smaller than the number of movies with genres or tags "
            f"({len(worded)}) and of different words in these ({weights.shape[1]})"
        )
    svd = decomposition.TruncatedSVD(dim, algorithm="arpack", random_state=0)
    table = svd.fit_transform(weights[worded])
    if standardise:
        spread = table.std(axis=0)
        table = (table - table.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    lengths = np.linalg.norm(table, axis=1)
    kept = lengths > SHORTEST
    row = np.full(len(documents), -1)
    row[worded[kept]] = np.arange(kept.sum())
    share = float(svd.explained_variance_ratio_.sum())
    return Features(
        np.ascontiguousarray(table[kept] / lengths[kept, None]), row, weights.shape[1], share
    )


def find_movielens_files(folder: str | os.PathLike[str]) -> Release:
    """Return the files of movies, ratings and, if there are any, tags, in a folder or an archive.

    They are .csv files in ml-20m, ml-25m and ml-latest, and .dat files in ml-1m and ml-10m.
    """
    if not isinstance(folder, (str, os.PathLike)):
        raise InvalidInput(f"folder must be the path of a MovieLens folder or zip, not {folder!r}")
    where = Path(folder).expanduser()
    looked_for = " or ".join(f"{movies} with {ratings}" for movies, ratings, _ in FORMATS)
    advice = (
        f"a MovieLens release has {looked_for}; "
        "grouplens.org/datasets/movielens has the releases, as zip files"
    )
    there = list_archive(where, advice) if where.is_file() else list_folder(where, advice)
    for names in FORMATS:
        movies, ratings, tags = (there.get(name) for name in names)
        if movies is not None and ratings is not None:
            return movies, ratings, tags
    raise InvalidInput(f"{where} does not hold MovieLens data: {advice}")


def list_folder(where: Path, advice: str) -> dict[str, ReleaseFile]:
    """List the MovieLens files of a folder by name."""
    if not where.is_dir():
        raise InvalidInput(f"{where} is not a folder or a zip file: {advice}")
    paths = [where / name for names in FORMATS for name in names]
    return {path.name: ReleaseFile.find(path) for path in paths if path.is_file()}


def list_archive(where: Path, advice: str) -> dict[str, ReleaseFile]:
    """List the MovieLens files of an archive by name, wherever they are in it."""
    try:
        with zipfile.ZipFile(where) as archive:
            members = archive.namelist()
    except zipfile.BadZipFile:
        raise InvalidInput(
            f"{where} is not a zip file, or not all of it was downloaded: {advice}"
        ) from None
    wanted = {name for names in FORMATS for name in names}
    found = {Path(member).name: member for member in members if Path(member).name in wanted}
    return {name: ReleaseFile.find(where, member) for name, member in found.items()}


def read_columns(file: ReleaseFile, columns: dict[str, str]) -> pandas.DataFrame:
    """Read columns of a MovieLens file; the values of `columns` are their types."""
    import_extra("pandas", "datasets", "MovieLensProblem")
    try:
        read = read_csv_columns if file.name.endswith(".csv") else read_dat_columns
        return read(file, columns)
    except InvalidInput:
        raise
    except (ValueError, OverflowError) as error:  # pandas' ParserError is a ValueError
        raise InvalidInput(f"{file} can't be read as MovieLens data: {error}") from None


def read_csv_columns(file: ReleaseFile, columns: dict[str, str]) -> pandas.DataFrame:
    """Read columns of a .csv file, after checking that it has them."""
    import pandas

    with file.open() as opened:
        there = pandas.read_csv(opened, nrows=0, encoding="utf-8").columns
    for name in columns:
        if name not in there:
            raise InvalidInput(
                f"{file} has no column {name!r}; it has {', '.join(map(str, there))}"
            )
    texts = [name for name, kind in columns.items() if kind == "str"]
    keep = {} if not texts else {"keep_default_na": False}  # a tag may be "null"
    names = list(columns)
    with file.open() as opened:
        return pandas.read_csv(opened, usecols=names, dtype=columns, encoding="utf-8", **keep)[
            names
        ]


def read_dat_columns(file: ReleaseFile, columns: dict[str, str]) -> pandas.DataFrame:
    """Read columns of a .dat file, which has fields between :: and no header.

    The fields are userId, movieId, rating, timestamp; or movieId, title, genres; or userId,
    movieId, tag, timestamp.
    """
    import pandas

    if "rating" in columns:  # millions of lines: pandas is fast with a separator of one character
        kinds = dict(zip((0, 2, 4), columns.values(), strict=True))
        with file.open() as opened:
            found = pandas.read_csv(opened, sep=":", header=None, usecols=list(kinds), dtype=kinds)
        return found.set_axis(list(columns), axis=1)
    rows = list(parse_words_by_movie(file, "genres" in columns))
    return pandas.DataFrame(rows, columns=list(columns)).astype(columns)


def parse_words_by_movie(file: ReleaseFile, listed: bool) -> Iterator[tuple[int, str]]:
    """Yield a movie's id and genres, if the MovieLens file is `listed`, or its id and a tag.

    Lines are movieId::title::genres or userId::movieId::tag::timestamp.
    """
    with file.open() as opened:
        raw = opened.read()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:  # ml-1m
        text = raw.decode("latin-1")
    for number, line in enumerate(text.rstrip("\n").split("\n"), start=1):
        parts = line.rstrip("\r").split("::")
        movie, words = (
            (parts[0], parts[-1])
            if listed
            else (parts[1] if len(parts) > 3 else "", "::".join(parts[2:-1]))
        )
        if len(parts) < 3 or not movie.isdecimal():
            raise InvalidInput(
                f"{file}, line {number}: {line[:60]!r} does not have the fields "
                "of a MovieLens file between ::"
            )
        yield int(movie), words
