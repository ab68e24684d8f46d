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

from .._shared.arrays import Counts, Flags, Floats
from .._shared.extras import import_extra
from ..errors import InvalidInput

if TYPE_CHECKING:
    import pandas


FORMATS = (
    ("movies.csv", "ratings.csv", "tags.csv"),
    ("movies.dat", "ratings.dat", "tags.dat"),
)  # tags need not be there
POSITIVE = 3  # ratings above it
WORD = r"[^\W_]{2,}"
NO_GENRES = "(no genres listed)"
SHORTEST = 1e-9  # what is left of a movie in the reduced space, below which it has no direction


@dataclass(frozen=True, eq=False)
class Ratings:
    """What a folder holds: a document for each movie; each user's ratings from starts[user] to starts[user + 1]."""

    documents: list[str]
    users: NDArray[np.int32]  # ids
    starts: Counts
    movies: NDArray[np.int32]  # the movie's place among the documents, -1 where it has none
    positive: Flags


@dataclass(frozen=True, eq=False)
class Features:
    """A row of length 1 for each movie that has words, and for each movie of the list which row it is (-1: none)."""

    table: Floats
    row: Counts
    n_words: int
    explained_variance: float


class Stamp(NamedTuple):
    """What says that a file is still as it was."""

    path: str
    changed: int
    size: int


Stamps = tuple[Stamp, Stamp, Stamp | None]  # of movies, ratings and tags
LOADING = (
    threading.Lock()
)  # a sweep makes the problem in many threads: one reads, the others wait for what it found


def load_folder(folder: str | os.PathLike[str], dim: int) -> tuple[Ratings, Features]:
    """What a folder holds, read once a process as long as its files stay as they are."""
    movies, ratings, tags = find_movielens_files(folder)
    stamps = (stamp_file(movies), stamp_file(ratings), None if tags is None else stamp_file(tags))
    with LOADING:
        return load_ratings(stamps), load_features(stamps, dim)


def stamp_file(file: Path) -> Stamp:
    found = file.stat()
    return Stamp(str(file.resolve()), found.st_mtime_ns, found.st_size)


@functools.lru_cache(maxsize=2)
def load_ratings(stamps: Stamps) -> Ratings:
    movies, ratings, tags = stamps
    listed = read_columns(Path(movies.path), {"movieId": "int32", "genres": "str"}).drop_duplicates(
        "movieId"
    )
    tagged = (
        None if tags is None else read_columns(Path(tags.path), {"movieId": "int32", "tag": "str"})
    )
    return group_ratings_by_user(
        Path(ratings.path), listed["movieId"], collect_documents(listed, tagged)
    )


@functools.lru_cache(maxsize=4)
def load_features(stamps: Stamps, dim: int) -> Features:
    return compute_features(load_ratings(stamps).documents, dim)


def group_ratings_by_user(file: Path, movie_ids: pandas.Series, documents: list[str]) -> Ratings:
    """The ratings, user after user; who rated a movie twice, as no release has it, has the later rating."""
    rows = read_columns(file, {"userId": "int32", "movieId": "int32", "rating": "float32"})
    if not len(rows):
        raise InvalidInput(f"{file} holds no rating")
    user, movie, rating = (rows[name].to_numpy() for name in rows)
    if np.isnan(rating).any():
        raise InvalidInput(
            f"{file} has no rating in row {int(np.isnan(rating).argmax()) + 1} of its ratings"
        )
    order = order_by_user_and_movie(user, movie)
    users, starts = np.unique(user[order], return_index=True)
    return Ratings(
        documents=documents,
        users=users,
        starts=np.append(starts, len(user[order])),
        movies=import_extra("pandas", "datasets", "MovieLensProblem")
        .Index(movie_ids)
        .get_indexer(movie[order])
        .astype(np.int32),
        positive=rating[order] > POSITIVE,
    )


def order_by_user_and_movie(user: NDArray[np.int32], movie: NDArray[np.int32]) -> Any:
    """What brings ratings into that order and keeps the last of a pair; nothing to do where they come so, as in most releases."""
    if ((np.diff(user) > 0) | ((np.diff(user) == 0) & (np.diff(movie) > 0))).all():
        return slice(None)
    order = np.lexsort((movie, user))
    same = (np.diff(user[order]) == 0) & (np.diff(movie[order]) == 0)
    return order[np.append(~same, True)]


def collect_documents(movies: pandas.DataFrame, tags: pandas.DataFrame | None) -> list[str]:
    """The words of each movie: its genres, and every tag that anybody gave it."""
    words = {
        movie: [] if genres == NO_GENRES else [genres]
        for movie, genres in pair_movies_with_words(movies)
    }
    for movie, tag in [] if tags is None else pair_movies_with_words(tags):
        words.get(movie, []).append(tag)  # a movie that is not in the list can't be an arm
    return [" ".join(said) for said in words.values()]


def pair_movies_with_words(table: pandas.DataFrame) -> Iterator[tuple[int, str]]:
    """Movie ids with genres or a tag."""
    return zip(*(table[name].tolist() for name in table), strict=True)


def compute_features(documents: list[str], dim: int) -> Features:
    """TF-IDF of the words, reduced to dim by a truncated singular value decomposition, scaled to length 1."""
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
            f"dim={dim} must be smaller than the number of movies with genres or tags ({len(worded)}) "
            f"and of different words in these ({weights.shape[1]})"
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
    """Movies, ratings and, if there are any, tags: as .csv (ml-20m, ml-25m, ml-latest) or as .dat (ml-1m, ml-10m)."""
    if not isinstance(folder, (str, os.PathLike)):
        raise InvalidInput(f"folder must be the path of a MovieLens folder, not {folder!r}")
    where = Path(folder).expanduser()
    looked_for = " or ".join(f"{movies} with {ratings}" for movies, ratings, _ in FORMATS)
    advice = f"a MovieLens folder has {looked_for}; grouplens.org/datasets/movielens has the releases, as zip files to unpack"
    if not where.is_dir():
        raise InvalidInput(f"{where} is not a folder: {advice}")
    for names in FORMATS:
        movies, ratings, tags = (where / name for name in names)
        if movies.is_file() and ratings.is_file():
            return movies, ratings, tags if tags.is_file() else None
    raise InvalidInput(f"{where} does not hold MovieLens data: {advice}")


def read_columns(file: Path, columns: dict[str, str]) -> pandas.DataFrame:
    """The columns of a file that are asked for, with these types."""
    import_extra("pandas", "datasets", "MovieLensProblem")
    try:
        return (read_csv_columns if file.suffix == ".csv" else read_dat_columns)(file, columns)
    except InvalidInput:
        raise
    except (ValueError, OverflowError) as error:  # pandas' ParserError is a ValueError
        raise InvalidInput(f"{file} can't be read as MovieLens data: {error}") from None


def read_csv_columns(file: Path, columns: dict[str, str]) -> pandas.DataFrame:
    import pandas

    there = pandas.read_csv(file, nrows=0, encoding="utf-8").columns
    for name in columns:
        if name not in there:
            raise InvalidInput(
                f"{file} has no column {name!r}; it has {', '.join(map(str, there))}"
            )
    texts = [name for name, kind in columns.items() if kind == "str"]
    keep = {} if not texts else {"keep_default_na": False}  # a tag may be "null"
    return pandas.read_csv(file, usecols=list(columns), dtype=columns, encoding="utf-8", **keep)[
        list(columns)
    ]


def read_dat_columns(file: Path, columns: dict[str, str]) -> pandas.DataFrame:
    """Fields between ::, without a header: userId, movieId, rating, timestamp; movieId, title, genres; userId, movieId, tag, …"""
    import pandas

    if (
        "rating" in columns
    ):  # millions of lines: a single colon is a separator that pandas is fast with
        kinds = dict(zip((0, 2, 4), columns.values(), strict=True))
        found = pandas.read_csv(file, sep=":", header=None, usecols=list(kinds), dtype=kinds)
        return found.set_axis(list(columns), axis=1)
    rows = list(parse_words_by_movie(file, "genres" in columns))
    return pandas.DataFrame(rows, columns=list(columns)).astype(columns)


def parse_words_by_movie(file: Path, listed: bool) -> Iterator[tuple[int, str]]:
    """The movie's id with its genres (movieId::title::genres), or with a tag (userId::movieId::tag::timestamp)."""
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
                f"{file}, line {number}: {line[:60]!r} does not have the fields of a MovieLens file between ::"
            )
        yield int(movie), words
