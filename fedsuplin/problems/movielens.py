"""MovieLens as a bandit: clients are users, arms are movies."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsuplin_ext import norms

from .._shared.arrays import Clients, Counts, Floats
from .._shared.checks import check_positive_integer
from ..errors import InvalidInput
from .data import DataProblem, DataStream, count_earlier, scale_to_whole_numbers
from .movielens_files import POSITIVE, Features, Ratings, load_folder

MIN_POSITIVES = 2500


class MovieLensProblem(DataProblem):
    """A MovieLens release in a folder that you have: the active user finds the one movie that it rated above 3.

    The others of the round are movies that the user has not rated. It pays 1, they pay 0.

    Users are those with more than `min_positives` ratings above 3 (2500 unless given, as in the paper), or instead the
    `most_active` ones with the most of them. Of these, `n_clients` (all unless given) play: the most active first, then by
    id, whatever the seed, so that a larger federation holds the smaller one and seeds differ in what is drawn alone.

    A movie is described by the words of its genres and of its tags, lower-cased, one count for each time that somebody
    gave the tag. Tags are taken apart into words since users write one tag in many ways ("time travel", "time-travel").
    TF-IDF, a truncated singular value decomposition to `dim`, and length 1; none of it depends on the seed. A movie without
    a word has no direction, so it is no arm (`n_without_features` counts them).

    A user's positives come in a random order, again and again, so none comes twice before all have; the other arms are
    distinct, drawn anew each round, and the place of the positive is random. As the reward is 0 or 1, `noise_scale` is 1/2.
    Random play has an expected reward of 1 / n_arms a round, which is `pulls - uniform_regret` in a result.

    >>> import pathlib, tempfile
    >>> made = tempfile.TemporaryDirectory()
    >>> folder, words = pathlib.Path(made.name), "dark funny space ocean love war".split()
    >>> movies = [f"{i},Movie {i},{words[i % 6]}|{words[i % 5]}" for i in range(30)]
    >>> ratings = [f"{user},{i},{2 + i % 4},0" for user in (7, 8) for i in range(12 + user)]
    >>> _ = (folder / "movies.csv").write_text("\\n".join(["movieId,title,genres", *movies]))
    >>> _ = (folder / "ratings.csv").write_text("\\n".join(["userId,movieId,rating,timestamp", *ratings]))
    >>> problem = MovieLensProblem(folder, dim=3, n_arms=5, most_active=2)
    >>> problem.users.tolist(), problem.n_positives, problem.n_movies
    ([8, 7], 19, 30)
    >>> chunk = problem.stream(100, None).take(4)
    >>> chunk.contexts.shape, chunk.rewards.sum(axis=1).tolist()
    ((4, 3, 8), [1.0, 1.0, 1.0, 1.0])
    >>> made.cleanup()
    """

    n_users: int
    """How many users pass the filter; the first `n_clients` of them play."""
    n_positives: int
    """How many ratings above 3 they have: the paper counts 37 users and 121 934 of these in ml-20m."""
    users: NDArray[np.int32]
    """The id of each client's user."""
    n_movies: int
    """How many movies have features, so can be an arm."""
    n_without_features: int
    """How many movies were left out since they have no word."""
    n_words: int
    """How many different words describe the movies, before the reduction to `dim`."""
    explained_variance: float
    """The share of the variance of the TF-IDF features that is left after the reduction."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        dim: int = 25,
        n_arms: int = 20,
        n_clients: int | None = None,
        most_active: int | None = None,
        min_positives: int | None = None,
        horizon: int | None = None,
        arrival: Any = None,
        seed: int = 0,
    ) -> None:
        ratings, features = load_folder(folder, check_positive_integer("dim", dim))
        passing, self.n_positives = select_users(ratings, most_active, min_positives)
        self.n_users = len(passing)
        clients = passing[: check_n_clients(n_clients, self.n_users)]
        super().__init__(dim, n_arms, len(clients), horizon=horizon, arrival=arrival, seed=seed)
        self.folder, self.users = str(folder), ratings.users[clients]
        self.n_movies, self.n_without_features = len(features.table), int((features.row < 0).sum())
        self.n_words, self.explained_variance = features.n_words, features.explained_variance
        self._features = features.table
        self._rated, self._liked = ByClient.of(ratings, features, clients)
        self._check_pools()
        self._parameters = {
            "folder": self.folder,
            "dim": self.dim,
            "n_arms": self.n_arms,
            "n_clients": None if n_clients is None else self.n_clients,
            "most_active": most_active,
            "min_positives": min_positives,
            "horizon": self.horizon,
            "arrival": arrival,
            "seed": self.seed,
        }

    def _check_pools(self) -> None:
        """Every client has something to like and enough that it has not rated."""
        unrated = self.n_movies - self._rated.counts
        for client, user in enumerate(self.users):
            if not self._liked.counts[client]:
                raise InvalidInput(
                    f"user {user} has no rating above {POSITIVE} of a movie with genres or tags"
                )
            if unrated[client] < self.n_arms - 1:
                raise InvalidInput(
                    f"user {user} has not rated {unrated[client]} of the {self.n_movies} movies that can be an arm; "
                    f"n_arms={self.n_arms} needs {self.n_arms - 1}"
                )

    @functools.cached_property
    def _order(self) -> Counts:
        """The liked movies of each client in the order in which they come, client after client."""
        (shuffle,) = self._generators(1)
        clients = np.repeat(np.arange(self.n_clients), self._liked.counts)
        return self._liked.movies[np.lexsort((shuffle.random(len(clients)), clients))]

    def stream(self, horizon: int, arrival: Any) -> MovieLensStream:
        return MovieLensStream(self, horizon, arrival)

    def in_words(self) -> str:
        users = f"{self.n_clients} of {self.n_users} users with {self.n_positives} positives"
        return f"MovieLens of {self.folder}: {users}, {self.n_movies} movies, reward 1 for the one that was liked"

    def __repr__(self) -> str:
        return (
            f"MovieLensProblem({self.folder!r}, {self.n_clients} of {self.n_users} users with {self.n_positives} positives, "
            f"{self.n_movies} movies with features and {self.n_without_features} without, dim={self.dim}, n_arms={self.n_arms}, "
            f"arrival={self.arrival}, horizon={self.horizon}, seed={self.seed})"
        )


class MovieLensStream(DataStream):
    """Draws rounds for whoever plays. Each pull takes the same number of random numbers, so a stream may be cut anywhere."""

    _problem: MovieLensProblem

    def __init__(self, problem: MovieLensProblem, horizon: int, arrival: Any) -> None:
        super().__init__(problem, horizon, arrival)
        _, self._others, self._places = problem._generators(
            3
        )  # the first is for the order of positives
        self._turns = np.zeros(problem.n_clients, np.int64)

    def _drawn(self, clients: Clients) -> tuple[Floats, Counts]:
        n, problem = len(clients), self._problem
        places = scale_to_whole_numbers(self._places.random(n), problem.n_arms)
        movies = np.empty((n, problem.n_arms), np.int64)
        movies[:, 0], movies[:, 1:] = self._liked_of(clients), self._unrated_of(clients)
        pulls = np.arange(n)
        movies[pulls, places], movies[:, 0] = movies[:, 0].copy(), movies[pulls, places]
        packed = self._room(n)
        norms.pack(problem._features.take(movies, axis=0), None, 1.0, packed)
        return packed, places

    def _liked_of(self, clients: Clients) -> Counts:
        """The next of each client's positives."""
        liked = self._problem._liked
        turns = self._turns[clients] + count_earlier(clients)
        self._turns += np.bincount(clients, minlength=len(self._turns))
        return self._problem._order[liked.starts[clients] + turns % liked.counts[clients]]

    def _unrated_of(self, clients: Clients) -> Counts:
        """n_arms - 1 distinct movies that the client has not rated: which of the unrated ones, then which movies these are."""
        problem = self._problem
        unrated = problem.n_movies - problem._rated.counts[clients]
        which = draw_distinct(self._others.random((len(clients), problem.n_arms - 1)), unrated)
        return problem._rated.absent(clients, which)


def draw_distinct(numbers: Floats, sizes: Counts) -> Counts:
    """In each row k different numbers below its size, every set of k as likely: Floyd's algorithm, from n × k uniform numbers.

    Column i draws from 0..top; what an earlier column has already becomes top, which none of them can be.
    """
    k = numbers.shape[1]
    tops = sizes[:, None] - k + np.arange(k)
    drawn = scale_to_whole_numbers(numbers, tops + 1)
    ordered = np.sort(drawn, axis=1)
    again = np.flatnonzero(
        (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    )  # few rows, where there are many movies
    part, tops = drawn[again], tops[again]
    for i in range(1, k):
        taken = (part[:, :i] == part[:, i : i + 1]).any(axis=1)
        part[taken, i] = tops[taken, i]
    drawn[again] = part
    return drawn


@dataclass(frozen=True, eq=False)
class ByClient:
    """Movies (rows of the features) of each client, sorted, client after client."""

    movies: Counts
    starts: Counts
    counts: Counts
    keys: Counts
    """client · n_movies + how many movies before this one are not in the client's list: sorted, so that it can be searched."""
    n_movies: int

    @classmethod
    def of(cls, ratings: Ratings, features: Features, clients: Counts) -> tuple[ByClient, ByClient]:
        """What these users have rated, and what they have liked, of the movies that can be an arm."""
        lengths = ratings.starts[clients + 1] - ratings.starts[clients]
        at = np.concatenate(
            [np.arange(ratings.starts[user], ratings.starts[user + 1]) for user in clients]
        )
        who = np.repeat(np.arange(len(clients)), lengths)
        known = np.append(features.row, -1)[
            ratings.movies[at]
        ]  # a movie that is not in the list has the index -1
        kept = known >= 0
        liked = kept & ratings.positive[at]
        rated, good = (
            cls.grouped(known[part], who[part], len(clients), len(features.table))
            for part in (kept, liked)
        )
        return rated, good

    @classmethod
    def grouped(cls, movies: Counts, who: Counts, n_clients: int, n_movies: int) -> ByClient:
        order = np.lexsort((movies, who))
        movies, who = movies[order], who[order]
        counts = np.bincount(who, minlength=n_clients)
        starts = np.cumsum(counts) - counts
        keys = who * n_movies + movies - (np.arange(len(movies)) - starts[who])
        return cls(movies, starts, counts, keys, n_movies)

    def absent(self, clients: Clients, which: Counts) -> Counts:
        """The movies that are number `which` (n × k) of those not in the client's list: none has to be listed for that."""
        found = np.searchsorted(
            self.keys, clients[:, None].astype(np.int64) * self.n_movies + which, side="right"
        )
        return which + found - self.starts[clients][:, None]


def select_users(
    ratings: Ratings, most_active: int | None, min_positives: int | None
) -> tuple[Counts, int]:
    """The users that the filter leaves, most positives first, then by id; and how many positives they have."""
    if most_active is not None and min_positives is not None:
        raise InvalidInput(
            "give either most_active (how many users) or min_positives (more than so many each), not both"
        )
    counts = np.add.reduceat(ratings.positive, ratings.starts[:-1], dtype=np.int64)
    order = np.lexsort((ratings.users, -counts))
    if most_active is not None:
        wanted, there = check_positive_integer("most_active", most_active), int((counts > 0).sum())
        if wanted > there:
            raise InvalidInput(
                f"most_active={wanted} is more than the {there} users who have a rating above {POSITIVE}"
            )
        order = order[:wanted]
    else:
        least = (
            MIN_POSITIVES
            if min_positives is None
            else check_positive_integer("min_positives", min_positives)
        )
        order = order[counts[order] > least]
        if not len(order):
            raise InvalidInput(
                f"no user has more than {least} ratings above {POSITIVE}: the most active has {counts.max()}. "
                "Give most_active= for so many users with the most of them, or a smaller min_positives="
            )
    return order, int(counts[order].sum())


def check_n_clients(n_clients: int | None, n_users: int) -> int:
    wanted = n_users if n_clients is None else check_positive_integer("n_clients", n_clients)
    if wanted > n_users:
        raise InvalidInput(
            f"n_clients={wanted} is more than the {n_users} users there are: a larger most_active= or a smaller min_positives= "
            "lets more in"
        )
    return wanted
