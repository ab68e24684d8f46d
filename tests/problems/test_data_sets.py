"""Problems from data: what a MovieLens folder, classification data and a table become, and what is refused and why."""

import importlib
import json
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import fedsuplin as fsl
from fedsuplin.cli.main import root_command
from fedsuplin.contracts.stream import check_chunk
from fedsuplin.errors import InvalidInput, MissingExtra, UnknownName
from fedsuplin.problems import movielens_files
from fedsuplin.problems.base import make_problem_from_spec
from fedsuplin.problems.data import count_earlier
from fedsuplin.problems.movielens import MoviesByClient, draw_distinct
from fedsuplin.problems.movielens_files import load_folder, read_csv_columns
from fedsuplin.reference.twin import run_reference
from fedsuplin.study.comparison import reseed_problem

WORDS = ("dark", "funny", "space", "ocean", "love", "war", "robot", "quiet", "music", "road")
N_MOVIES = 60
NAMELESS = (11, 59)  # movies with neither genres nor tags
SMALL = {"dim": 6, "n_arms": 5}
FOUND = ("arms", "layers", "clients", "communication")


# --- made-up folders in the three formats ----------------------------------------------------------------------------


def made_up(seed=0):
    """Sixty movies, each with a tag of its own, so that features tell them apart; four users with fewer and fewer ratings."""
    rng = np.random.default_rng(seed)
    movies = [
        (
            10 * i,
            f'"Quotes", Colons: Movie é {i} (1999)',
            "" if i in NAMELESS else f"{WORDS[i % 10].title()}|{WORDS[i % 7]}",
        )
        for i in range(N_MOVIES)
    ]
    tags = [
        (3, 10 * i, f"Own-word{chr(97 + i // 26)}{chr(97 + i % 26)} null")
        for i in range(N_MOVIES)
        if i not in NAMELESS
    ]
    ratings = [
        (user, 10 * int(movie), int(rng.integers(1, 6)))
        for user, n in ((3, 45), (5, 30), (8, 25), (9, 12))
        for movie in rng.choice(N_MOVIES, n, replace=False)
    ]
    return movies, ratings, tags


def written(folder, style, movies, ratings, tags):
    """The folder, as a release of that style has it."""
    folder.mkdir(exist_ok=True)
    if style == "csv":
        pd.DataFrame(
            [(i, t, g or "(no genres listed)") for i, t, g in movies],
            columns=["movieId", "title", "genres"],
        ).to_csv(folder / "movies.csv", index=False)
        for name, rows, value in (("ratings", ratings, "rating"), ("tags", tags, "tag")):
            frame = pd.DataFrame(rows, columns=["userId", "movieId", value]).assign(timestamp=7)
            frame.to_csv(folder / f"{name}.csv", index=False)
        return folder
    rows = {"movies": movies, "ratings": [(*row, 7) for row in ratings]}
    rows |= {"tags": [(*row, 7) for row in tags]} if style == "dat with tags" else {}
    for name, lines in rows.items():
        text = "".join("::".join(map(str, line)) + "\n" for line in lines)
        (folder / f"{name}.dat").write_bytes(text.encode("latin-1" if style == "dat" else "utf-8"))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written(tmp_path_factory.mktemp("data") / "ml-made-up", "csv", *made_up())


def movies_of(problem, contexts):
    """Which movies (rows of the features) the arms are: pulls × arms."""
    row = {features.tobytes(): number for number, features in enumerate(problem._features)}
    assert len(row) == problem.n_movies  # else arms can't be told apart
    return np.array(
        [
            [row[arm.tobytes()] for arm in np.ascontiguousarray(pull.T[: problem.n_arms])]
            for pull in contexts
        ]
    )


def rated_by(problem, user, above=0):
    """The rows of the movies that a user has rated above a number."""
    row_of_movie, (_, ratings, _) = load_folder(problem.folder, problem.dim)[1].row, made_up()
    rows = {
        int(row_of_movie[movie // 10])
        for who, movie, rating in ratings
        if who == user and rating > above
    }
    return rows - {-1}


# --- MovieLens: what is in a folder ----------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["csv", "dat", "dat with tags"])
def test_every_format_of_movielens_has_the_same_users_and_movies(style, tmp_path):
    problem = fsl.MovieLensProblem(
        written(tmp_path / "ml", style, *made_up()), **SMALL, most_active=3
    )
    liked = {
        user: sum(rating > 3 for who, _, rating in made_up()[1] if who == user)
        for user in (3, 5, 8, 9)
    }
    expected = sorted(liked, key=lambda user: (-liked[user], user))[:3]
    assert problem.users.tolist() == expected
    assert (problem.n_users, problem.n_positives) == (3, sum(liked[user] for user in expected))
    assert (problem.n_movies, problem.n_without_features) == (
        N_MOVIES - len(NAMELESS),
        len(NAMELESS),
    )
    assert problem.n_words == {"csv": 69, "dat": 10, "dat with tags": 69}[style] + (
        0 if style == "dat" else 1
    )


def test_the_two_formats_with_tags_have_the_same_features(folder, tmp_path):
    other = written(tmp_path / "ml", "dat with tags", *made_up())
    ours, theirs = (
        fsl.MovieLensProblem(each, **SMALL, most_active=2)._features for each in (folder, other)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1.0, rtol=1e-12)
    genres_alone = fsl.MovieLensProblem(
        written(tmp_path / "ml-1m", "dat", *made_up()), **SMALL, most_active=2
    )._features
    assert np.abs(genres_alone - ours).max() > 0.01


def test_the_columns_of_a_csv_file_are_known_by_their_names(folder, tmp_path):
    mine = shutil.copytree(folder, tmp_path / "ml")
    for file in mine.iterdir():
        pd.read_csv(file, keep_default_na=False).iloc[:, ::-1].to_csv(file, index=False)
    one, other = (
        fsl.MovieLensProblem(each, **SMALL, most_active=4).stream(50, None).take(50)
        for each in (folder, mine)
    )
    np.testing.assert_allclose(one.contexts, other.contexts, atol=1e-12)


def test_a_tag_is_its_words_however_it_is_written(tmp_path):
    movies, ratings, tags = made_up()
    ways = ["Time Travel", "time-travel", "TIME_TRAVEL", "time travel!"]
    tags = [row for row in tags if row[1] >= 40] + [(3, 10 * i, way) for i, way in enumerate(ways)]
    movies = [(i, title, "Drama" if i < 40 else genres) for i, title, genres in movies]
    features = fsl.MovieLensProblem(
        written(tmp_path / "ml", "csv", movies, ratings, tags), **SMALL, most_active=2
    )._features
    np.testing.assert_allclose(features[1:4], features[[0, 0, 0]], atol=1e-12)


def test_users_are_those_with_more_than_min_positives(folder):
    liked = {
        user: sum(rating > 3 for who, _, rating in made_up()[1] if who == user)
        for user in (3, 5, 8, 9)
    }
    for least in sorted(liked.values())[:-1]:
        expected = {user for user, count in liked.items() if count > least}
        found = fsl.MovieLensProblem(folder, **SMALL, min_positives=least)
        assert set(found.users.tolist()) == expected and found.n_positives == sum(
            liked[user] for user in expected
        )


def test_three_and_a_half_is_above_three_and_three_is_not_and_ties_go_by_id(tmp_path):
    movies, _, tags = made_up()
    ratings = [(user, 10 * i, 3.5 if i < 6 else 3.0) for user in (9, 4, 7) for i in range(20)]
    problem = fsl.MovieLensProblem(
        written(tmp_path / "ml", "csv", movies, ratings, tags), **SMALL, min_positives=5
    )
    assert problem.users.tolist() == [4, 7, 9] and problem.n_positives == 18


def test_the_order_of_ratings_does_not_matter_and_the_last_rating_of_a_movie_counts(
    folder, tmp_path
):
    movies, ratings, tags = made_up()
    twice = [(user, movie, 8 - rating) for user, movie, rating in ratings[::3]]
    mixed = [ratings[i] for i in np.random.default_rng(1).permutation(len(ratings))]
    one, other = (
        fsl.MovieLensProblem(
            written(tmp_path / name, "csv", movies, rows, tags), **SMALL, most_active=4, seed=2
        )
        for name, rows in (("sorted", sorted(ratings)), ("mixed", twice + mixed))
    )
    assert one.users.tolist() == other.users.tolist() and one.n_positives == other.n_positives
    assert (
        one.stream(100, None).take(100).contexts == other.stream(100, None).take(100).contexts
    ).all()


def test_a_larger_federation_holds_the_smaller_whatever_the_seed(folder):
    users = [
        fsl.MovieLensProblem(folder, **SMALL, most_active=4, n_clients=m, seed=m).users.tolist()
        for m in (1, 2, 3, 4)
    ]
    assert all(more[: len(fewer)] == fewer for fewer, more in zip(users, users[1:], strict=False))
    smaller = fsl.MovieLensProblem(folder, **SMALL, most_active=4, n_clients=2)
    assert (smaller.n_users, smaller.n_clients) == (4, 2)
    assert smaller.n_positives == fsl.MovieLensProblem(folder, **SMALL, most_active=4).n_positives


# --- MovieLens: rounds -----------------------------------------------------------------------------------------------


def test_a_round_has_one_movie_that_the_user_liked_and_distinct_ones_it_has_not_rated(folder):
    problem = fsl.MovieLensProblem(folder, **SMALL, most_active=4, seed=3)
    chunk = problem.stream(600, None).take(600)
    movies = movies_of(problem, chunk.contexts)
    assert (np.diff(np.sort(movies, axis=1)) > 0).all()
    assert (
        (chunk.rewards[:, :5].sum(axis=1) == 1).all()
        and not chunk.rewards[:, 5:].any()
        and not chunk.noise.any()
    )
    for client, user in enumerate(problem.users):
        mine, pays = (
            movies[chunk.clients == client],
            chunk.rewards[chunk.clients == client][:, :5] == 1,
        )
        assert set(mine[pays]) == rated_by(problem, user, above=3)
        assert set(mine[~pays]) == set(range(problem.n_movies)) - rated_by(problem, user)


def test_no_positive_comes_twice_before_all_have(folder):
    problem = fsl.MovieLensProblem(folder, **SMALL, most_active=4)
    chunk = problem.stream(400, None).take(400)
    paying = movies_of(problem, chunk.contexts)[chunk.rewards[:, :5] == 1]
    for client, count in enumerate(problem._liked.counts):
        mine = paying[chunk.clients == client]
        passes = [mine[start : start + count] for start in range(0, len(mine) - count + 1, count)]
        assert len(passes) >= 3 and all(len(set(each)) == count for each in passes)


def test_the_place_of_the_positive_is_uniform_and_so_are_the_others(folder):
    problem = fsl.MovieLensProblem(folder, **SMALL, most_active=4, n_clients=1, seed=5)
    chunk = problem.stream(8000, None).take(8000)
    places = np.bincount(chunk.rewards.argmax(axis=1), minlength=5)
    assert len(places) == 5 and stats.chisquare(places).pvalue > 1e-3
    others = movies_of(problem, chunk.contexts)[chunk.rewards[:, :5] == 0]
    counts = np.bincount(others, minlength=problem.n_movies)
    assert stats.chisquare(counts[counts > 0]).pvalue > 1e-3


@settings(max_examples=40)
@given(
    cuts=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    seed=st.integers(0, 5),
    arrival=st.sampled_from([None, "click-leave"]),
)
def test_a_stream_is_the_same_however_it_is_cut(folder, cuts, seed, arrival):
    for problem in (
        fsl.MovieLensProblem(folder, **SMALL, most_active=4, seed=seed, arrival=arrival),
        fsl.DigitsProblem(n_clients=3, n_features=2, seed=seed, arrival=arrival),
    ):
        whole, stream, start = (
            problem.stream(500, None).take(sum(cuts)),
            problem.stream(500, None),
            0,
        )
        for n in cuts:
            part = stream.take(n)
            for name in ("contexts", "clients", "rewards", "sigma", "noise"):
                np.testing.assert_array_equal(
                    getattr(part, name), getattr(whole, name)[start : start + n]
                )
            start += n


def test_the_seed_decides_places_other_movies_and_the_order_of_positives(folder):
    def drawn(seed):
        problem = fsl.MovieLensProblem(folder, **SMALL, most_active=4, n_clients=1, seed=seed)
        chunk = problem.stream(15, None).take(15)
        pays, movies = chunk.rewards[:, :5] == 1, movies_of(problem, chunk.contexts)
        return pays.argmax(axis=1).tolist(), movies[pays].tolist(), movies[~pays].tolist()

    assert drawn(1) == drawn(1)
    assert all(one != other for one, other in zip(drawn(1), drawn(2), strict=True))


@given(st.data())
def test_different_numbers_below_a_size_whatever_the_draws(data):
    k = data.draw(st.integers(0, 6))
    sizes = np.array(data.draw(st.lists(st.integers(max(k, 1), 9), min_size=1, max_size=20)))
    drawn = draw_distinct(
        np.random.default_rng(data.draw(st.integers(0, 99))).random((len(sizes), k)), sizes
    )
    assert drawn.shape == (len(sizes), k) and (drawn < sizes[:, None]).all() and (drawn >= 0).all()
    assert all(len(set(row)) == k for row in drawn.tolist())


def test_every_set_of_different_numbers_is_as_likely():
    drawn = np.sort(
        draw_distinct(np.random.default_rng(1).random((20_000, 3)), np.full(20_000, 6)), axis=1
    )
    counts = np.unique(drawn, axis=0, return_counts=True)[1]
    assert len(counts) == 20 and stats.chisquare(counts).pvalue > 1e-3


@given(st.lists(st.sets(st.integers(0, 11)), min_size=1, max_size=5))
def test_movies_that_are_not_in_a_list_are_found_without_listing_them(lists):
    who = np.repeat(np.arange(len(lists)), [len(each) for each in lists])
    rated = MoviesByClient.group(
        np.array([m for each in lists for m in each], int), who, len(lists), 12
    )
    for client, each in enumerate(lists):
        expected = sorted(set(range(12)) - each)
        found = rated.find_absent(np.array([client]), np.arange(len(expected))[None])
        assert found.ravel().tolist() == expected


@given(st.lists(st.integers(0, 4), max_size=30))
def test_how_often_a_value_came_before(values):
    assert count_earlier(np.array(values, int)).tolist() == [
        values[:at].count(value) for at, value in enumerate(values)
    ]


def test_a_user_who_rated_almost_everything_has_the_rest_in_every_round(tmp_path):
    movies, _, tags = made_up()
    there = [i for i in range(N_MOVIES) if i not in NAMELESS]
    ratings = [(1, 10 * i, 5) for i in there[4:]]
    where = written(tmp_path / "ml", "csv", movies, ratings, tags)
    problem = fsl.MovieLensProblem(where, **SMALL, most_active=1)
    movies = movies_of(problem, problem.stream(200, None).take(200).contexts)
    assert all(len(set(row) & {0, 1, 2, 3}) == 4 for row in movies.tolist())
    with pytest.raises(
        InvalidInput,
        match=r"user 1 has not rated 4 of the 58 movies that can be an arm; n_arms=6 needs 5",
    ):
        fsl.MovieLensProblem(where, dim=6, n_arms=6, most_active=1)


# --- MovieLens: runs -------------------------------------------------------------------------------------------------


def problems(folder):
    return fsl.MovieLensProblem(folder, **SMALL, most_active=4), fsl.DigitsProblem(
        n_clients=4, n_features=2
    )


@pytest.mark.parametrize("variant", ["async", "sync", "variance", "oful"])
@pytest.mark.parametrize("kind", [0, 1], ids=["movielens", "digits"])
def test_the_twins_agree_on_data(folder, kind, variant):
    problem = problems(folder)[kind]
    engine = fsl.run(variant, problem, horizon=800, record="all")
    twin = run_reference(variant, problem, horizon=800)
    for name in FOUND:
        np.testing.assert_array_equal(getattr(engine, name), getattr(twin, name), err_msg=name)
    np.testing.assert_allclose(engine.regret, twin.regret, rtol=1e-9)


@pytest.mark.parametrize("kind", [0, 1], ids=["movielens", "digits"])
def test_random_plays_reward_is_in_every_result(folder, kind):
    """1/K a pull in expectation: what a reward is to be divided by."""
    problem = problems(folder)[kind]
    result = fsl.run("uniform", problem, horizon=8000)
    expected = result.pulls[-1] - result.uniform_regret[-1]
    assert expected == pytest.approx(8000 / problem.n_arms, rel=1e-9)  # a sum of 8000 rounded terms
    assert abs(result.reward[-1] - expected) < 4 * np.sqrt(expected)
    np.testing.assert_allclose(
        result.reward + result.regret, result.pulls
    )  # the best arm has 1 every round


def test_policies_in_rounds_have_the_users_take_turns(folder):
    result = fsl.run(
        "sync", fsl.MovieLensProblem(folder, **SMALL, most_active=4), horizon=400, record="all"
    )
    assert result.clients[:6].tolist() == [0, 1, 2, 3, 0, 1]
    with pytest.raises(InvalidInput, match="arrival must be 'round-robin'"):
        fsl.run(
            "sync",
            fsl.MovieLensProblem(folder, **SMALL, most_active=4, arrival="random"),
            horizon=400,
        )


def test_a_policy_is_told_that_rewards_are_zero_or_one(folder):
    for problem in problems(folder):
        assert (problem.noise_scale, problem.R, problem.theta) == (0.5, 1.0, None)
        assert (problem.stream(10, None).take(10).sigma == 0.5).all()
        assert (
            fsl.run("async", problem, horizon=100).spec["algorithm"]["noise"]["parameters"][
                "noise_scale"
            ]
            == 0.5
        )


def test_a_result_makes_its_problem_again(folder, tmp_path):
    for problem in (
        fsl.MovieLensProblem(
            folder, **SMALL, most_active=4, n_clients=3, arrival="click-leave", horizon=300, seed=7
        ),
        fsl.DigitsProblem(n_clients=3, n_features=3, arrival="click-leave", horizon=300, seed=7),
    ):
        result = fsl.run("async", problem, record="all")
        algorithm, again = fsl.RunResult.load(result.save(tmp_path / "run.npz")).rebuild()
        assert repr(again) == repr(problem) and again.spec == problem.spec
        np.testing.assert_array_equal(fsl.run(algorithm, again, record="all").arms, result.arms)
        assert reseed_problem(problem, 8).seed == 8


def test_a_problem_with_an_arrival_of_ones_own_says_that_it_can_not_be_made_again(folder):
    from fedsuplin_plugins.arrivals import Random

    spec = fsl.MovieLensProblem(folder, **SMALL, most_active=4, arrival=Random()).spec
    assert (
        spec["problem"] == "movielens" and spec["parameters"] is None and "Random" in spec["shown"]
    )
    with pytest.raises(InvalidInput, match="can't be made again"):
        make_problem_from_spec(spec)


def test_the_command_line_plays_data(folder):
    def told(*options):
        called = CliRunner().invoke(
            root_command, ["run", "async", "--horizon", "400", "--json", *options]
        )
        assert called.exit_code == 0, called.output
        return json.loads(called.output)["spec"]["problem"]

    assert (
        told("--problem", "digits", "--clients", "4", "--set", "n_features=3")["parameters"][
            "n_features"
        ]
        == 3
    )
    sizes = ("--dim", "6", "--arms", "5", "--clients", "3")
    found = told(
        "--problem", "movielens", "--set", f"folder={folder}", "--set", "most_active=4", *sizes
    )
    assert found["parameters"]["folder"] == str(folder) and found["parameters"]["n_clients"] == 3


# --- MovieLens: reading once -----------------------------------------------------------------------------------------


def test_many_threads_read_a_folder_once(folder, tmp_path, monkeypatch):
    mine, read = shutil.copytree(folder, tmp_path / "ml"), []
    usual = read_csv_columns

    def slowly(file, columns):
        read.append(file.name)
        time.sleep(0.05)
        return usual(file, columns)

    monkeypatch.setattr(movielens_files, "read_csv_columns", slowly)
    found = [None] * 8

    def make(seed):
        found[seed] = fsl.MovieLensProblem(mine, **SMALL, most_active=4, seed=seed)

    threads = [threading.Thread(target=make, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(read) == ["movies.csv", "ratings.csv", "tags.csv"]
    assert all(problem._features is found[0]._features for problem in found)


def test_a_folder_that_has_changed_is_read_again(folder, tmp_path):
    mine = shutil.copytree(folder, tmp_path / "ml")
    before = fsl.MovieLensProblem(mine, **SMALL, most_active=4).n_positives
    with (mine / "ratings.csv").open("a") as file:
        file.write(
            "3,999999,5.0,7\n"
        )  # of a movie that the list does not have: a positive that can't be an arm
    after = fsl.MovieLensProblem(mine, **SMALL, most_active=4)
    assert (
        after.n_positives
        == before + 1
        == after._liked.counts.sum()
        + sum(10 * i == movie and rating > 3 for i in NAMELESS for _, movie, rating in made_up()[1])
        + 1
    )


def test_comparisons_make_the_problem_for_every_seed(folder):
    found = fsl.compare(
        ["oful", "uniform"],
        fsl.MovieLensProblem(folder, **SMALL, most_active=4),
        seeds=4,
        horizon=200,
    )
    assert [result.seed for result in found.runs["oful"]] == [0, 1, 2, 3]
    assert len(set(found.last("uniform", "reward"))) > 1


# --- MovieLens: what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {},
            r"no user has more than 2500 ratings above 3: the most active has \d+. Give most_active=",
        ),
        ({"min_positives": 50}, "no user has more than 50 ratings"),
        ({"most_active": 5}, "most_active=5 is more than the 4 users who have a rating above 3"),
        (
            {"most_active": 2, "min_positives": 3},
            "give either most_active .* or min_positives .*, not both",
        ),
        ({"most_active": 4, "n_clients": 5}, "n_clients=5 is more than the 4 chosen users"),
        ({"most_active": 0}, "most_active must be a whole number of at least 1, not 0"),
        (
            {"most_active": 4, "n_clients": 2.5},
            "n_clients must be a whole number of at least 1, not 2.5",
        ),
        ({"most_active": 4, "dim": 0}, "dim must be a whole number"),
        (
            {"most_active": 4, "dim": 58},
            r"dim=58 must be smaller than the number of movies with genres or tags \(58\)",
        ),
        (
            {"most_active": 4, "n_arms": 40},
            r"user 3 has not rated \d+ of the 58 movies that can be an arm; n_arms=40 needs 39",
        ),
        ({"most_active": 4, "seed": -1}, "seed must be a whole number of at least 0"),
        ({"most_active": 4, "horizon": 0}, "horizon must be a whole number"),
    ],
)
def test_parameters_that_do_not_fit_the_folder_are_refused(folder, changes, message):
    with pytest.raises(InvalidInput, match=message):
        fsl.MovieLensProblem(folder, **(SMALL | changes))


def test_a_place_without_the_data_says_what_is_looked_for_and_where_to_get_it(tmp_path):
    for where, message in (
        (tmp_path / "nowhere", "is not a folder"),
        (tmp_path, "does not hold MovieLens data"),
    ):
        with pytest.raises(
            InvalidInput, match=f"{message}: .*movies.csv with ratings.csv or .*grouplens.org"
        ):
            fsl.MovieLensProblem(where, most_active=2)
    with pytest.raises(InvalidInput, match="folder must be the path of a MovieLens folder, not 20"):
        fsl.MovieLensProblem(20)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "ratings.csv",
            "userId,movieId,stars\n1,10,5\n",
            "ratings.csv has no column 'rating'; it has userId, movieId, stars",
        ),
        (
            "ratings.csv",
            "userId,movieId,rating\n1,ten,5\n",
            "ratings.csv can't be read as MovieLens data: .*ten",
        ),
        (
            "ratings.csv",
            "userId,movieId,rating\n1,10,5\n1,20,\n",
            "ratings.csv has no rating in row 2",
        ),
        ("ratings.csv", "userId,movieId,rating\n", "ratings.csv holds no rating"),
        ("ratings.csv", "", "ratings.csv can't be read as MovieLens data"),
        (
            "ratings.csv",
            "userId,movieId,rating\n7,110,5\n",
            "user 7 has no rating above 3 of a movie with genres or tags",
        ),
        (
            "ratings.csv",
            "userId,movieId,rating\n7,10,2\n",
            "most_active=1 is more than the 0 users",
        ),
        (
            "movies.csv",
            "movieId,title\n1,A\n",
            "movies.csv has no column 'genres'; it has movieId, title",
        ),
        ("movies.csv", "movieId,title,genres\n1,A,!\n", "can't be described by words"),
        ("tags.csv", "userId,movieId,tags\n", "tags.csv has no column 'tag'"),
    ],
)
def test_a_file_that_can_not_be_read_is_named(folder, tmp_path, file, text, message):
    mine = shutil.copytree(folder, tmp_path / "ml")
    if "described" in message:
        (mine / "tags.csv").unlink()
    (mine / file).write_text(text)
    with pytest.raises(InvalidInput, match=message):
        fsl.MovieLensProblem(mine, **SMALL, most_active=1)


@pytest.mark.parametrize(
    ("file", "line"),
    [("movies.dat", "7::Only a title"), ("tags.dat", "1::10::no time"), ("ratings.dat", "1::10")],
)
def test_a_line_of_a_dat_file_that_can_not_be_read_is_named(tmp_path, file, line):
    mine = written(tmp_path / "ml", "dat with tags", *made_up())
    (mine / file).write_text(line + "\n")
    with pytest.raises(InvalidInput, match=f"{file}.*(line 1|MovieLens data)"):
        fsl.MovieLensProblem(mine, **SMALL, most_active=1)


# --- classification --------------------------------------------------------------------------------------------------


def blobs(n=300, columns=4):
    rng = np.random.default_rng(0)
    labels = rng.choice(["ant", "bee", "cat"], n)
    centres = {"ant": 3.0, "bee": -3.0, "cat": 0.0}
    return rng.normal(size=(n, columns)) + np.array([centres[label] for label in labels])[
        :, None
    ] + 50, labels


def test_a_round_shows_one_example_in_the_block_of_each_arm_and_its_class_pays():
    features, labels = blobs()
    problem = fsl.ClassificationProblem(features, labels, n_clients=2, constant=False)
    assert problem.classes.tolist() == ["ant", "bee", "cat"] and (problem.dim, problem.n_arms) == (
        12,
        3,
    )
    chunk = problem.stream(200, None).take(200)
    centred = features - features.mean(axis=0)
    example_of = {
        row.tobytes(): at for at, row in enumerate(centred / np.linalg.norm(centred, axis=1).max())
    }
    for contexts, rewards in zip(chunk.contexts, chunk.rewards, strict=True):
        blocks = contexts.reshape(3, 4, 4)  # block, feature, arm
        example = np.ascontiguousarray(blocks[0, :, 0])
        for block in range(3):
            for arm in range(4):
                np.testing.assert_array_equal(
                    blocks[block, :, arm], example if block == arm else np.zeros(4)
                )
        assert (
            problem.classes[rewards.argmax()] == labels[example_of[example.tobytes()]]
            and rewards.sum() == 1
        )


def test_a_constant_feature_is_added_unless_told_otherwise_and_nothing_is_longer_than_one():
    features, labels = blobs()
    with_it, without = (
        fsl.ClassificationProblem(features, labels, constant=constant) for constant in (True, False)
    )
    assert (with_it.dim, without.dim) == (15, 12)
    assert (with_it._examples[:, -1] == with_it._examples[0, -1]).all()
    for problem in (with_it, without):
        assert np.linalg.norm(problem._examples, axis=1).max() == pytest.approx(1.0)


def test_the_chunks_pass_the_checks_of_a_third_partys_problem(folder):
    for problem in problems(folder):
        stream = problem.stream(50, None)
        chunk = stream.take(50)
        check_chunk(chunk, 50, 0, problem.n_arms)


def test_async_learns_the_digits():
    result = fsl.run("async", fsl.DigitsProblem(), horizon=20_000)
    assert result.regret[-1] < 0.45 * result.uniform_regret[-1]
    since = np.searchsorted(result.pulls, 10_000)
    late = (result.regret[-1] - result.regret[since]) / (result.pulls[-1] - result.pulls[since])
    assert late < 0.9 * result.regret[-1] / result.pulls[-1]  # and goes on learning


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"features": np.zeros(3)},
            r"features must have the shape \(examples, columns\), none of them 0, not \(3,\)",
        ),
        ({"features": [["a", "b"]]}, "features can't be read as an array of numbers"),
        (
            {"features": np.where(np.arange(1200).reshape(300, 4) == 42, np.nan, 1.0)},
            r"features\[10, 2\] is nan",
        ),
        (
            {"labels": ["ant"] * 299},
            r"labels must be one for each of the 300 examples, not of shape \(299,\)",
        ),
        ({"labels": ["ant"] * 300}, "labels hold one class only, .*ant"),
        ({"labels": [np.nan] + [1.0] * 299}, r"labels\[0\] is not finite"),
        (
            {"labels": np.array([None] + ["ant"] * 299, object)},
            "labels can't be sorted into classes",
        ),
        (
            {"n_features": 5},
            r"n_features=5 is more than the 4 components that \(300, 4\) features have",
        ),
        ({"n_features": 0}, "n_features must be a whole number of at least 1"),
        ({"n_clients": 0}, "n_clients must be a whole number of at least 1"),
    ],
)
def test_examples_that_can_not_be_played_are_refused(changes, message):
    features, labels = blobs()
    with pytest.raises(InvalidInput, match=message):
        fsl.ClassificationProblem(**({"features": features, "labels": labels} | changes))


def test_examples_that_are_all_the_same_are_a_bandit_without_features():
    problem = fsl.ClassificationProblem(np.ones((4, 2)), [0, 1, 1, 1])
    assert fsl.run("async", problem, horizon=200).complete
    assert problem.spec["parameters"] is None


# --- tables ----------------------------------------------------------------------------------------------------------


def table(seed=0, n=60):
    """Rounds of two to four arms, of clients with names, shuffled as a table may be."""
    rng = np.random.default_rng(seed)
    rows = [
        {
            "when": 10 * t,
            "shop": ("rome", "oslo", "bern")[t % 3],
            "a": x[0],
            "b": x[1],
            "paid": 0.2 + 0.5 * x[0] - 0.3 * x[1],
        }
        for t in range(n)
        for x in rng.uniform(-0.7, 0.7, (2 + t % 3, 2))
    ]
    return pd.DataFrame(rows)


NAMES = {"round": "when", "client": "shop", "reward": "paid"}


@pytest.mark.parametrize("form", ["frame", "dict", "csv", "csv.gz", "parquet", "arrow"])
def test_a_table_in_any_form_is_the_problem_that_its_arrays_are(form, tmp_path):
    frame = table()
    contexts, rewards, mask = np.zeros((60, 4, 2)), np.zeros((60, 4)), np.zeros((60, 4), bool)
    for t in range(60):
        rows = frame[frame["when"] == 10 * t]
        contexts[t, : len(rows)], rewards[t, : len(rows)], mask[t, : len(rows)] = (
            rows[["a", "b"]],
            rows["paid"],
            True,
        )
    clients = np.array([2, 1, 0])[np.arange(60) % 3]  # bern, oslo, rome
    expected = fsl.run(
        "async", fsl.ArrayProblem(contexts, clients, rewards=rewards, mask=mask), record="all"
    )
    problem = fsl.problem_from_table(in_form(frame, form, tmp_path), **NAMES)
    assert problem.client_labels == ["bern", "oslo", "rome"] and problem.feature_names == ["a", "b"]
    assert problem.round_labels == list(range(0, 600, 10)) and isinstance(problem, fsl.ArrayProblem)
    found = fsl.run("async", problem, record="all")
    np.testing.assert_array_equal(found.arms, expected.arms)
    np.testing.assert_allclose(found.regret, expected.regret)


def in_form(frame, form, folder):
    if form in ("csv", "csv.gz"):
        frame.to_csv(folder / f"t.{form}", index=False)
        return folder / f"t.{form}"
    if form == "parquet":
        frame.to_parquet(folder / "t.parquet")
        return str(folder / "t.parquet")
    if form == "arrow":
        return importlib.import_module("pyarrow").Table.from_pandas(frame)
    return {name: frame[name].tolist() for name in frame} if form == "dict" else frame


def test_rounds_come_in_the_order_of_their_values_wherever_their_rows_are():
    frame = table()
    shuffled = frame.sample(frac=1.0, random_state=0).sort_values("a", kind="stable")
    by_a = frame.sort_values(["when", "a"])
    one, other = (fsl.problem_from_table(each, **NAMES) for each in (shuffled, by_a))
    np.testing.assert_array_equal(one._contexts, other._contexts)
    np.testing.assert_array_equal(one._clients, other._clients)


def test_clients_may_be_called_anything():
    frame = table().assign(
        shop=lambda rows: rows["shop"].map({"rome": 7, "oslo": "guest", "bern": 3})
    )
    assert fsl.problem_from_table(frame, **NAMES).client_labels == [3, 7, "guest"]


def test_features_are_the_other_columns_unless_named():
    frame = table().assign(note="text")
    assert fsl.problem_from_table(frame, **NAMES, features=["b"]).dim == 1
    with pytest.raises(
        InvalidInput, match="column 'note' of the table does not hold numbers; features= names"
    ):
        fsl.problem_from_table(frame, **NAMES)


def test_long_contexts_are_scaled_when_asked():
    frame = table().assign(a=lambda rows: rows["a"] * 30)
    with pytest.raises(InvalidInput, match="has length .*scale_contexts=True"):
        fsl.problem_from_table(frame, **NAMES)
    scaled = fsl.problem_from_table(frame, **NAMES, scale_contexts=True)
    assert np.linalg.norm(scaled._contexts, axis=2).max() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda f: f.drop(columns="shop"),
            "the table has no column 'shop'; it has when, a, b, paid",
        ),
        (
            lambda f: f.drop(columns=["a", "b"]),
            "the table has no features: columns beside when, shop, paid",
        ),
        (lambda f: f[:0], "the table has no row"),
        (lambda f: pd.concat([f, f["a"]], axis=1), "the table has two columns called 'a'"),
        (
            lambda f: f.assign(shop=[["x"]] * len(f)),
            "column 'shop' of the table can't tell rows apart: unhashable",
        ),
        (
            lambda f: f.assign(shop=["x"] + ["y"] * (len(f) - 1)),
            "round 0 has rows of several 'shop'",
        ),
        (
            lambda f: f.assign(shop=[None] + ["y"] * (len(f) - 1)),
            "row 0 of the table has no 'shop'",
        ),
        (
            lambda f: f.assign(a=[0.1, np.nan] + [0.1] * (len(f) - 2)),
            "row 1 of the table has no finite 'a'",
        ),
        (lambda f: f.assign(paid="much"), "column 'paid' of the table does not hold numbers"),
        (lambda f: f.assign(paid=[0.1, np.inf] + [0.1] * (len(f) - 2)), r"rewards\[0, 1\] is inf"),
        (lambda f: {"when": [1, 2], "shop": [1], "paid": [0], "a": [0]}, "do not fit together"),
        (
            lambda f: 7,
            "a table is a DataFrame, a dict of columns, or the path of a Parquet or CSV file, not int",
        ),
        (lambda f: "rounds.xlsx", "rounds.xlsx: the name of a table's file must end in .parquet"),
        (lambda f: "nowhere.csv", "nowhere.csv does not exist"),
    ],
)
def test_tables_that_can_not_be_played_are_refused(spoil, message):
    with pytest.raises(InvalidInput, match=message):
        fsl.problem_from_table(spoil(table()), **NAMES)


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_a_file_that_is_no_table_is_named(tmp_path, name):
    (tmp_path / name).write_bytes(b"\xff\xfe\x00 nothing")
    with pytest.raises(InvalidInput, match=f"{name} can't be read as a table"):
        fsl.problem_from_table(tmp_path / name)


def logged(n=3000, noise=0.1):
    """What a log has: three arms a round, the reward of the first alone."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-0.7, 0.7, (3 * n, 2)), columns=["a", "b"])
    frame["when"], frame["shop"] = np.repeat(np.arange(n), 3), np.repeat(np.arange(n) % 4, 3)
    paid = 0.5 * frame["a"] - 0.3 * frame["b"] + rng.normal(0, noise, 3 * n)
    return frame.assign(paid=np.where(np.arange(3 * n) % 3 == 0, paid, np.nan))


def test_missing_rewards_are_an_error_that_says_what_to_do():
    with pytest.raises(
        InvalidInput,
        match=r"6000 of 9000 rewards are missing, the first in round 0, arm 1: .*missing=\"model\"",
    ):
        fsl.problem_from_table(logged(), **NAMES)
    with pytest.raises(
        UnknownName, match="unknown way with missing rewards 'modle'. Did you mean 'model'"
    ):
        fsl.problem_from_table(logged(), **NAMES, missing="modle")


def test_a_model_of_the_known_rewards_takes_the_place_of_all():
    frame = logged()
    problem = fsl.problem_from_table(frame, **NAMES, missing="model", seed=1)
    np.testing.assert_allclose(problem.theta, [0.5, -0.3], atol=0.02)
    assert problem.noise_scale == pytest.approx(0.1, rel=0.05)
    known = frame[frame["paid"].notna()]
    residuals = known["paid"] - known[["a", "b"]].to_numpy() @ problem.theta
    drawn = problem.stream(3000, None).take(3000).noise
    assert (
        set(drawn.round(12)) <= set((residuals - residuals.mean()).round(12))
        and len(set(drawn)) > 1000
    )
    assert fsl.run("async", problem).regret[-1] < 0.2 * fsl.run("async", problem).uniform_regret[-1]
    again, other = (
        fsl.problem_from_table(frame, **NAMES, missing="model", seed=seed)._noise for seed in (1, 2)
    )
    assert (again == problem._noise).all() and (other != problem._noise).any()


def test_a_model_fits_the_contexts_that_are_played():
    frame = logged().assign(a=lambda rows: rows["a"] * 10, b=lambda rows: rows["b"] * 10)
    problem = fsl.problem_from_table(frame, **NAMES, missing="model", scale_contexts=True)
    known = frame[frame["paid"].notna()]
    fitted = problem._contexts[:, 0] @ problem.theta
    assert (
        np.corrcoef(fitted, known["paid"])[0, 1] > 0.9
        and np.linalg.norm(problem._contexts, axis=2).max() <= 1 + 1e-12
    )


def test_arms_that_are_not_there_do_not_count_in_a_model():
    frame = logged()
    fewer = frame[
        (np.arange(len(frame)) % 3 == 0) | (frame["when"] % 2 == 0)
    ]  # unknown rewards of every other round are gone
    whole, part = (
        fsl.problem_from_table(each, **NAMES, missing="model") for each in (frame, fewer)
    )
    np.testing.assert_allclose(part.theta, whole.theta, rtol=1e-12)
    assert part.noise_scale == pytest.approx(whole.noise_scale, rel=1e-12)
    np.testing.assert_array_equal(
        part.stream(3000, None).take(3000).mask[:2, :3], [[1, 1, 1], [1, 0, 0]]
    )


def test_a_model_needs_something_to_fit():
    with pytest.raises(InvalidInput, match="every reward is missing"):
        fsl.problem_from_table(logged(10).assign(paid=np.nan), **NAMES, missing="model")
    with pytest.raises(InvalidInput, match="ridge must be positive"):
        fsl.problem_from_table(logged(10), **NAMES, missing="model", ridge=0)


# --- extras and examples ---------------------------------------------------------------------------------------------


def test_importing_fedsuplin_imports_neither_pandas_nor_scikit_learn():
    code = "import sys, fedsuplin; print({'pandas', 'sklearn', 'pyarrow', 'joblib'} & set(sys.modules))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "set()"
    )


def test_a_missing_extra_says_what_to_install(folder, tmp_path, monkeypatch):
    mine = shutil.copytree(folder, tmp_path / "ml")
    for module in ("sklearn.decomposition", "sklearn.feature_extraction.text"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        MissingExtra,
        match=r"MovieLensProblem needs scikit-learn: pip install 'fedsuplin\[datasets\]'",
    ):
        fsl.MovieLensProblem(mine, **SMALL, most_active=2)
    with pytest.raises(MissingExtra, match="needs scikit-learn"):
        fsl.ClassificationProblem(*blobs(), n_features=2)
    assert fsl.ClassificationProblem(*blobs()).dim == 15  # which needs none
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        MissingExtra,
        match=r"problem_from_table needs pandas: pip install 'fedsuplin\[datasets\]'",
    ):
        fsl.problem_from_table({})
