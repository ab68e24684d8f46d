"""MovieLens as a bandit: clients are users, arms are movies."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsuplin_ext import norms

from .._shared.array_types import Clients, Counts, Floats
from .._shared.checks import check_positive_integer
from ..errors import InvalidInput
from .data import DataProblem, DataStream, count_earlier, scale_to_whole_numbers
from .movielens_files import POSITIVE, Features, Ratings, load_release

MIN_POSITIVES = 2500


class MovieLensProblem(DataProblem):
    """A MovieLens release as a bandit: clients are users, arms are movies.

    In each round one arm is a movie that the user rated above 3, a positive. It pays 1. The other
    arms are movies that the user has not rated. They pay 0. So random play has an expected reward
    of 1 / n_arms per round, and `noise_scale` is 1/2.

    A user's positives come in a random order, and none comes twice before all have come. The other
    arms are distinct and drawn again each round. The place of the positive is random.

    The features of a movie are the words of its genres and tags, in lower case, with one count for
    each time that a user gave the tag. Tags are split into words because users write one tag in
    many ways ("time travel", "time-travel"). TF-IDF and a truncated singular value decomposition
    reduce them to `dim`, and each is scaled to length 1. None of this depends on the seed. A movie
    without words has no direction, so it can't be an arm.

    Parameters
    ----------
    folder : str or os.PathLike
        A release: its folder, such as ml-20m, or the archive as it is downloaded, ml-20m.zip.
    dim : int, default 25
        The dimension of the features.
    n_arms : int, default 20
        The number of arms per round.
    n_clients : int, optional
        How many of the chosen users play: the most active first, then by id, whatever the seed.
        Defaults to all of them.
    most_active : int, optional
        Choose this many users, those with the most ratings above 3.
    min_positives : int, optional
        Choose instead the users with more than this many ratings above 3. Defaults to 2500, as in
        the paper.
    standardise : bool, default False
        Give each column of the reduced features mean 0 and variance 1 before they are scaled to
        length 1, as the public preprocessing of Li and Wang does.
    horizon : int, optional
        The number of pulls. Defaults to as many as a run asks for.
    arrival : str or arrival pattern, optional
        Which client plays when. Defaults to rounds for policies that sync all clients, and
        otherwise to a random client.
    seed : int, default 0
        The seed of everything random.

    Attributes
    ----------
    n_users : int
        The number of chosen users; the first `n_clients` of them play.
    n_positives : int
        How many ratings above 3 the chosen users have. The paper counts 37 users and 121 934
        positives in ml-20m.
    users : array of int
        The id of each client's user.
    n_movies : int
        The number of movies with features, which can be arms.
    n_without_features : int
        The number of movies that were left out since they have no words.
    n_words : int
        The number of different words that describe the movies, before the reduction to `dim`.
    explained_variance : float
        The share of the variance of the TF-IDF features that is left after the reduction.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from fedsuplin import MovieLensProblem
    >>> made = tempfile.TemporaryDirectory()
    >>> folder, words = pathlib.Path(made.name), "dark funny space ocean love war".split()
    >>> movies = [f"{i},Movie {i},{words[i % 6]}|{words[i % 5]}" for i in range(30)]
    >>> ratings = [f"{user},{i},{2 + i % 4},0" for user in (7, 8) for i in range(12 + user)]
    >>> movies.insert(0, "movieId,title,genres")
    >>> ratings.insert(0, "userId,movieId,rating,timestamp")
    >>> _ = (folder / "movies.csv").write_text("\\n".join(movies))
    >>> _ = (folder / "ratings.csv").write_text("\\n".join(ratings))
    >>> problem = MovieLensProblem(folder, dim=3, n_arms=5, most_active=2)
    >>> problem.users.tolist(), problem.n_positives, problem.n_movies
    ([8, 7], 19, 30)
    >>> chunk = problem.stream(100, None).take(4)
    >>> chunk.contexts.shape, chunk.rewards.sum(axis=1).tolist()
    ((4, 3, 5), [1.0, 1.0, 1.0, 1.0])
    >>> made.cleanup()
    """

    n_users: int
    n_positives: int
    users: NDArray[np.int32]
    n_movies: int
    n_without_features: int
    n_words: int
    explained_variance: float

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        dim: int = 25,
        n_arms: int = 20,
        n_clients: int | None = None,
        most_active: int | None = None,
        min_positives: int | None = None,
        standardise: bool = False,
        horizon: int | None = None,
        arrival: Any = None,
        seed: int = 0,
    ) -> None:
        if not isinstance(standardise, bool):
            raise InvalidInput(f"standardise must be True or False, not {standardise!r}")
        dim = check_positive_integer("dim", dim)
        ratings, features = load_release(folder, dim, standardise)
        passing, self.n_positives = select_users(ratings, most_active, min_positives)
        self.n_users = len(passing)
        clients = passing[: check_n_clients(n_clients, self.n_users)]
        super().__init__(dim, n_arms, len(clients), horizon=horizon, arrival=arrival, seed=seed)
        self.folder, self.users = str(folder), ratings.users[clients]
        self.standardise = standardise
        self.n_movies, self.n_without_features = len(features.table), int((features.row < 0).sum())
        self.n_words, self.explained_variance = features.n_words, features.explained_variance
        self._features = features.table
        self._rated, self._liked = MoviesByClient.from_ratings(ratings, features, clients)
        self._check_pools()
        self._parameters = {
            "folder": self.folder,
            "dim": self.dim,
            "n_arms": self.n_arms,
            "n_clients": None if n_clients is None else self.n_clients,
            "most_active": most_active,
            "min_positives": min_positives,
            "standardise": standardise,
            "horizon": self.horizon,
            "arrival": arrival,
            "seed": self.seed,
        }

    def _check_pools(self) -> None:
        """Check that each client has a positive, and enough movies that it has not rated."""
        unrated = self.n_movies - self._rated.counts
        for client, user in enumerate(self.users):
            if not self._liked.counts[client]:
                raise InvalidInput(
                    f"user {user} has no rating above {POSITIVE} of a movie with genres or tags"
                )
            if unrated[client] < self.n_arms - 1:
                raise InvalidInput(
                    f"user {user} has not rated {unrated[client]} of the {self.n_movies} movies "
                    f"that can be an arm; n_arms={self.n_arms} needs {self.n_arms - 1}"
                )

    @functools.cached_property
    def _order(self) -> Counts:
        """The positives of each client in the order in which they come, client after client."""
        (shuffle,) = self._spawn_generators(1)
        clients = np.repeat(np.arange(self.n_clients), self._liked.counts)
        return self._liked.movies[np.lexsort((shuffle.random(len(clients)), clients))]

    def stream(self, horizon: int, arrival: Any) -> MovieLensStream:
        return MovieLensStream(self, horizon, arrival)

    def describe(self) -> str:
        """Describe the data in a few words.

        Returns
        -------
        str
            The folder, the numbers of users and movies, and what pays.
        """
        users = f"{self.n_clients} of {self.n_users} users with {self.n_positives} positives"
        movies = f"{self.n_movies} movies, reward 1 for the one that was liked"
        return f"MovieLens of {self.folder}: {users}, {movies}"

    def __repr__(self) -> str:
        return (
            f"MovieLensProblem({self.folder!r}, {self.n_clients} of {self.n_users} users "
            f"with {self.n_positives} positives, {self.n_movies} movies with features "
            f"and {self.n_without_features} without, dim={self.dim}, n_arms={self.n_arms}, "
            f"standardise={self.standardise}, "
            f"arrival={self.arrival}, horizon={self.horizon}, seed={self.seed})"
        )


class MovieLensStream(DataStream):
    """Draw the rounds of a MovieLensProblem.

    Each pull takes the same number of random numbers, so that a stream may be cut anywhere.
    """

    _problem: MovieLensProblem

    def __init__(self, problem: MovieLensProblem, horizon: int, arrival: Any) -> None:
        super().__init__(problem, horizon, arrival)
        # The first generator is for the order of positives.
        _, self._others, self._places = problem._spawn_generators(3)
        self._turns = np.zeros(problem.n_clients, np.int64)

    def _draw_rounds(self, clients: Clients) -> tuple[Floats, Counts]:
        """Draw a positive and n_arms - 1 unrated movies per client; the positive pays."""
        n, problem = len(clients), self._problem
        places = scale_to_whole_numbers(self._places.random(n), problem.n_arms)
        movies = np.empty((n, problem.n_arms), np.int64)
        movies[:, 0], movies[:, 1:] = self._take_liked(clients), self._draw_unrated(clients)
        pulls = np.arange(n)
        movies[pulls, places], movies[:, 0] = movies[:, 0].copy(), movies[pulls, places]
        packed = self._reserve_contexts(n)
        norms.pack(problem._features.take(movies, axis=0), None, 1.0, packed)
        return packed, places

    def _take_liked(self, clients: Clients) -> Counts:
        """Take the next positive of each client."""
        liked = self._problem._liked
        turns = self._turns[clients] + count_earlier(clients)
        self._turns += np.bincount(clients, minlength=len(self._turns))
        return self._problem._order[liked.starts[clients] + turns % liked.counts[clients]]

    def _draw_unrated(self, clients: Clients) -> Counts:
        """Draw n_arms - 1 distinct movies that the client has not rated."""
        problem = self._problem
        unrated = problem.n_movies - problem._rated.counts[clients]
        which = draw_distinct(self._others.random((len(clients), problem.n_arms - 1)), unrated)
        return problem._rated.find_absent(clients, which)


def draw_distinct(numbers: Floats, sizes: Counts) -> Counts:
    """Turn n × k uniform numbers into k different movies per row, as numbers below its size.

    Every set of k is equally likely: Floyd's algorithm. Column i draws from 0..top; what an earlier
    column already has becomes top, which no earlier column can have.
    """
    k = numbers.shape[1]
    tops = sizes[:, None] - k + np.arange(k)
    drawn = scale_to_whole_numbers(numbers, tops + 1)
    ordered = np.sort(drawn, axis=1)
    again = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))  # usually few rows
    part, tops = drawn[again], tops[again]
    for i in range(1, k):
        taken = (part[:, :i] == part[:, i : i + 1]).any(axis=1)
        part[taken, i] = tops[taken, i]
    drawn[again] = part
    return drawn


@dataclass(frozen=True, eq=False)
class MoviesByClient:
    """A list of movies per client: rows of the features, sorted, client after client.

    A key is client · n_movies plus the number of earlier movies that are not in the client's list.
    Keys are sorted, so that they can be searched.
    """

    movies: Counts
    starts: Counts
    counts: Counts
    keys: Counts
    n_movies: int

    @classmethod
    def from_ratings(
        cls, ratings: Ratings, features: Features, clients: Counts
    ) -> tuple[MoviesByClient, MoviesByClient]:
        """Return what these users have rated, and what they liked, of the movies with features."""
        lengths = ratings.starts[clients + 1] - ratings.starts[clients]
        at = np.concatenate(
            [np.arange(ratings.starts[user], ratings.starts[user + 1]) for user in clients]
        )
        who = np.repeat(np.arange(len(clients)), lengths)
        known = np.append(features.row, -1)[ratings.movies[at]]  # -1: not in the list of movies
        kept = known >= 0
        liked = kept & ratings.positive[at]
        rated, good = (
            cls.group(known[part], who[part], len(clients), len(features.table))
            for part in (kept, liked)
        )
        return rated, good

    @classmethod
    def group(cls, movies: Counts, who: Counts, n_clients: int, n_movies: int) -> MoviesByClient:
        """Group movies by the client in `who`."""
        order = np.lexsort((movies, who))
        movies, who = movies[order], who[order]
        counts = np.bincount(who, minlength=n_clients)
        starts = np.cumsum(counts) - counts
        keys = who * n_movies + movies - (np.arange(len(movies)) - starts[who])
        return cls(movies, starts, counts, keys, n_movies)

    def find_absent(self, clients: Clients, which: Counts) -> Counts:
        """Return the movies that are number `which` (n × k) of those not in the client's list."""
        found = np.searchsorted(
            self.keys, clients[:, None].astype(np.int64) * self.n_movies + which, side="right"
        )
        return which + found - self.starts[clients][:, None]


def select_users(
    ratings: Ratings, most_active: int | None, min_positives: int | None
) -> tuple[Counts, int]:
    """Return the MovieLens users that are clients, most positives first, and their positives."""
    if most_active is not None and min_positives is not None:
        raise InvalidInput(
            "give either most_active (how many users) "
            "or min_positives (more than so many each), not both"
        )
    counts = np.add.reduceat(ratings.positive, ratings.starts[:-1], dtype=np.int64)
    order = np.lexsort((ratings.users, -counts))
    if most_active is not None:
        wanted, there = check_positive_integer("most_active", most_active), int((counts > 0).sum())
        if wanted > there:
            raise InvalidInput(
                f"most_active={wanted} is more than the {there} users "
                f"who have a rating above {POSITIVE}"
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
                f"no user has more than {least} ratings above {POSITIVE}: "
                f"the most active has {counts.max()}. Give most_active=, "
                "the number of users with the most of them, or a smaller min_positives="
            )
    return order, int(counts[order].sum())


def check_n_clients(n_clients: int | None, n_users: int) -> int:
    """Return the number of clients, after checking that MovieLens has as many users."""
    wanted = n_users if n_clients is None else check_positive_integer("n_clients", n_clients)
    if wanted > n_users:
        raise InvalidInput(
            f"n_clients={wanted} is more than the {n_users} chosen users: "
            "give a larger most_active= or a smaller min_positives="
        )
    return wanted
