"""Read a MovieLens folder, once per process: ratings by user, features by movie."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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


class Stamp(NamedTuple):
    """Path, time and size of a file: while they stay the same, it need not be read again."""

    path: str
    changed: int
    size: int


Stamps = tuple[Stamp, Stamp, Stamp | None]  # of movies, ratings and tags
# A sweep makes the problem in many threads: one reads the files while the others wait.
LOADING = threading.Lock()


def load_folder(folder: str | os.PathLike[str], dim: int) -> tuple[Ratings, Features]:
    """Load ratings and features of a MovieLens folder; a process reads unchanged files once."""
    movies, ratings, tags = find_movielens_files(folder)
    stamps = (stamp_file(movies), stamp_file(ratings), None if tags is None else stamp_file(tags))
    with LOADING:
        return load_ratings(stamps), load_features(stamps, dim)


def stamp_file(file: Path) -> Stamp:
    """Return the stamp of a MovieLens file as it is now."""
    found = file.stat()
    return Stamp(str(file.resolve()), found.st_mtime_ns, found.st_size)


@functools.lru_cache(maxsize=2)
def load_ratings(stamps: Stamps) -> Ratings:
    """Read movies, ratings and tags from MovieLens files."""
    movies, ratings, tags = stamps
    listed = read_columns(Path(movies.path), {"movieId": "int32", "genres": "str"})
    listed = listed.drop_duplicates("movieId")
    tagged = None
    if tags is not None:
        tagged = read_columns(Path(tags.path), {"movieId": "int32", "tag": "str"})
    documents = collect_documents(listed, tagged)
    return group_ratings_by_user(Path(ratings.path), listed["movieId"], documents)


@functools.lru_cache(maxsize=4)
def load_features(stamps: Stamps, dim: int) -> Features:
    """Compute the features of the movies in MovieLens files."""
    return compute_features(load_ratings(stamps).documents, dim)


def group_ratings_by_user(file: Path, movie_ids: pandas.Series, documents: list[str]) -> Ratings:
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


def compute_features(documents: list[str], dim: int) -> Features:
    """Compute TF-IDF of the words in MovieLens files, reduced to dim by an SVD, of length 1."""
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
    lengths = np.linalg.norm(table, axis=1)
    kept = lengths > SHORTEST
    row = np.full(len(documents), -1)
    row[worded[kept]] = np.arange(kept.sum())
    share = float(svd.explained_variance_ratio_.sum())
    return Features(
        np.ascontiguousarray(table[kept] / lengths[kept, None]), row, weights.shape[1], share
    )


def find_movielens_files(folder: str | os.PathLike[str]) -> tuple[Path, Path, Path | None]:
    """Return the files of movies, ratings and, if there are any, tags.

    They are .csv files in ml-20m, ml-25m and ml-latest, and .dat files in ml-1m and ml-10m.
    """
    if not isinstance(folder, (str, os.PathLike)):
        raise InvalidInput(f"folder must be the path of a MovieLens folder, not {folder!r}")
    where = Path(folder).expanduser()
    looked_for = " or ".join(f"{movies} with {ratings}" for movies, ratings, _ in FORMATS)
    advice = (
        f"a MovieLens folder has {looked_for}; "
        "grouplens.org/datasets/movielens has the releases, as zip files to unpack"
    )
    if not where.is_dir():
        raise InvalidInput(f"{where} is not a folder: {advice}")
    for names in FORMATS:
        movies, ratings, tags = (where / name for name in names)
        if movies.is_file() and ratings.is_file():
            return movies, ratings, tags if tags.is_file() else None
    raise InvalidInput(f"{where} does not hold MovieLens data: {advice}")


def read_columns(file: Path, columns: dict[str, str]) -> pandas.DataFrame:
    """Read columns of a MovieLens file; the values of `columns` are their types."""
    import_extra("pandas", "datasets", "MovieLensProblem")
    try:
        return (read_csv_columns if file.suffix == ".csv" else read_dat_columns)(file, columns)
    except InvalidInput:
        raise
    except (ValueError, OverflowError) as error:  # pandas' ParserError is a ValueError
        raise InvalidInput(f"{file} can't be read as MovieLens data: {error}") from None


def read_csv_columns(file: Path, columns: dict[str, str]) -> pandas.DataFrame:
    """Read columns of a .csv file, after checking that it has them."""
    import pandas

    there = pandas.read_csv(file, nrows=0, encoding="utf-8").columns
    for name in columns:
        if name not in there:
            raise InvalidInput(
                f"{file} has no column {name!r}; it has {', '.join(map(str, there))}"
            )
    texts = [name for name, kind in columns.items() if kind == "str"]
    keep = {} if not texts else {"keep_default_na": False}  # a tag may be "null"
    names = list(columns)
    return pandas.read_csv(file, usecols=names, dtype=columns, encoding="utf-8", **keep)[names]


def read_dat_columns(file: Path, columns: dict[str, str]) -> pandas.DataFrame:
    """Read columns of a .dat file, which has fields between :: and no header.

    The fields are userId, movieId, rating, timestamp; or movieId, title, genres; or userId,
    movieId, tag, timestamp.
    """
    import pandas

    if "rating" in columns:  # millions of lines: pandas is fast with a separator of one character
        kinds = dict(zip((0, 2, 4), columns.values(), strict=True))
        found = pandas.read_csv(file, sep=":", header=None, usecols=list(kinds), dtype=kinds)
        return found.set_axis(list(columns), axis=1)
    rows = list(parse_words_by_movie(file, "genres" in columns))
    return pandas.DataFrame(rows, columns=list(columns)).astype(columns)


def parse_words_by_movie(file: Path, listed: bool) -> Iterator[tuple[int, str]]:
    """Yield a movie's id and genres, if the MovieLens file is `listed`, or its id and a tag.

    Lines are movieId::title::genres or userId::movieId::tag::timestamp.
    """
    raw = file.read_bytes()
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
