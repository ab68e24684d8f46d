"""MovieLensProblem: what is read from a folder, how rounds are drawn, and what is refused."""

import shutil
import sys
import threading
import time
import zipfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import fedsuplin as fsl
from fedsuplin.errors import InvalidInput, MissingExtra
from fedsuplin.problems import movielens_files
from fedsuplin.problems.movielens import MoviesByClient, draw_distinct
from fedsuplin.problems.movielens_files import load_release, read_csv_columns
from fedsuplin.problems.specs import make_problem_from_spec

SMALL = {"dim": 6, "n_arms": 5}


def movies_of(problem, contexts):
    """Return the movies (rows of the features) that are the arms: pulls × arms."""
    row = {features.tobytes(): number for number, features in enumerate(problem._features)}
    assert len(row) == problem.n_movies  # else two arms would look the same
    return np.array(
        [
            [row[arm.tobytes()] for arm in np.ascontiguousarray(pull.T[: problem.n_arms])]
            for pull in contexts
        ]
    )


def rated_by(release, problem, user, above=0):
    """Return the rows of the movies that a user has rated above a number."""
    row_of_movie, (_, ratings, _) = (
        load_release(problem.folder, problem.dim)[1].row,
        release.make_rows(),
    )
    rows = {
        int(row_of_movie[movie // 10])
        for who, movie, rating in ratings
        if who == user and rating > above
    }
    return rows - {-1}


@pytest.mark.parametrize("style", ["csv", "dat", "dat with tags"])
def test_all_formats_give_the_same_users_and_movies(release, style, tmp_path):
    problem = fsl.MovieLensProblem(
        release.write(tmp_path / "ml", style, *release.make_rows()), **SMALL, most_active=3
    )
    liked = {
        user: sum(rating > 3 for who, _, rating in release.make_rows()[1] if who == user)
        for user in (3, 5, 8, 9)
    }
    expected = sorted(liked, key=lambda user: (-liked[user], user))[:3]
    assert problem.users.tolist() == expected
    assert (problem.n_users, problem.n_positives) == (3, sum(liked[user] for user in expected))
    assert (problem.n_movies, problem.n_without_features) == (
        release.N_MOVIES - len(release.NAMELESS),
        len(release.NAMELESS),
    )
    assert problem.n_words == {"csv": 69, "dat": 10, "dat with tags": 69}[style] + (
        0 if style == "dat" else 1
    )


def test_both_formats_with_tags_give_the_same_features(release, folder, tmp_path):
    other = release.write(tmp_path / "ml", "dat with tags", *release.make_rows())
    ours, theirs = (
        fsl.MovieLensProblem(each, **SMALL, most_active=2)._features for each in (folder, other)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1.0, rtol=1e-12)
    genres_alone = fsl.MovieLensProblem(
        release.write(tmp_path / "ml-1m", "dat", *release.make_rows()), **SMALL, most_active=2
    )._features
    assert np.abs(genres_alone - ours).max() > 0.01


def test_columns_of_a_csv_file_are_found_by_name(folder, tmp_path):
    mine = shutil.copytree(folder, tmp_path / "ml")
    for file in mine.iterdir():
        pd.read_csv(file, keep_default_na=False).iloc[:, ::-1].to_csv(file, index=False)
    one, other = (
        fsl.MovieLensProblem(each, **SMALL, most_active=4).stream(50, None).take(50)
        for each in (folder, mine)
    )
    np.testing.assert_allclose(one.contexts, other.contexts, atol=1e-12)


def test_spellings_of_a_tag_give_the_same_words(release, tmp_path):
    movies, ratings, tags = release.make_rows()
    ways = ["Time Travel", "time-travel", "TIME_TRAVEL", "time travel!"]
    tags = [row for row in tags if row[1] >= 40] + [(3, 10 * i, way) for i, way in enumerate(ways)]
    movies = [(i, title, "Drama" if i < 40 else genres) for i, title, genres in movies]
    features = fsl.MovieLensProblem(
        release.write(tmp_path / "ml", "csv", movies, ratings, tags), **SMALL, most_active=2
    )._features
    np.testing.assert_allclose(features[1:4], features[[0, 0, 0]], atol=1e-12)


def test_min_positives_selects_users_with_more_positives(release, folder):
    liked = {
        user: sum(rating > 3 for who, _, rating in release.make_rows()[1] if who == user)
        for user in (3, 5, 8, 9)
    }
    for least in sorted(liked.values())[:-1]:
        expected = {user for user, count in liked.items() if count > least}
        found = fsl.MovieLensProblem(folder, **SMALL, min_positives=least)
        assert set(found.users.tolist()) == expected and found.n_positives == sum(
            liked[user] for user in expected
        )


def test_a_positive_is_a_rating_above_three_and_ties_are_ordered_by_id(release, tmp_path):
    movies, _, tags = release.make_rows()
    ratings = [(user, 10 * i, 3.5 if i < 6 else 3.0) for user in (9, 4, 7) for i in range(20)]
    problem = fsl.MovieLensProblem(
        release.write(tmp_path / "ml", "csv", movies, ratings, tags), **SMALL, min_positives=5
    )
    assert problem.users.tolist() == [4, 7, 9] and problem.n_positives == 18


def test_the_order_of_ratings_does_not_matter_and_the_last_rating_of_a_movie_counts(
    release, folder, tmp_path
):
    movies, ratings, tags = release.make_rows()
    twice = [(user, movie, 8 - rating) for user, movie, rating in ratings[::3]]
    mixed = [ratings[i] for i in np.random.default_rng(1).permutation(len(ratings))]
    one, other = (
        fsl.MovieLensProblem(
            release.write(tmp_path / name, "csv", movies, rows, tags),
            **SMALL,
            most_active=4,
            seed=2,
        )
        for name, rows in (("sorted", sorted(ratings)), ("mixed", twice + mixed))
    )
    assert one.users.tolist() == other.users.tolist() and one.n_positives == other.n_positives
    assert (
        one.stream(100, None).take(100).contexts == other.stream(100, None).take(100).contexts
    ).all()


def test_more_clients_include_the_fewer_for_every_seed(folder):
    users = [
        fsl.MovieLensProblem(folder, **SMALL, most_active=4, n_clients=m, seed=m).users.tolist()
        for m in (1, 2, 3, 4)
    ]
    assert all(more[: len(fewer)] == fewer for fewer, more in zip(users, users[1:], strict=False))
    smaller = fsl.MovieLensProblem(folder, **SMALL, most_active=4, n_clients=2)
    assert (smaller.n_users, smaller.n_clients) == (4, 2)
    assert smaller.n_positives == fsl.MovieLensProblem(folder, **SMALL, most_active=4).n_positives


def test_a_round_has_one_liked_movie_and_distinct_unrated_ones(release, folder):
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
        assert set(mine[pays]) == rated_by(release, problem, user, above=3)
        assert set(mine[~pays]) == set(range(problem.n_movies)) - rated_by(release, problem, user)


def test_no_positive_comes_twice_before_all_have_come(folder):
    problem = fsl.MovieLensProblem(folder, **SMALL, most_active=4)
    chunk = problem.stream(400, None).take(400)
    paying = movies_of(problem, chunk.contexts)[chunk.rewards[:, :5] == 1]
    for client, count in enumerate(problem._liked.counts):
        mine = paying[chunk.clients == client]
        passes = [mine[start : start + count] for start in range(0, len(mine) - count + 1, count)]
        assert len(passes) >= 3 and all(len(set(each)) == count for each in passes)


def test_places_and_unrated_movies_are_uniform(folder):
    problem = fsl.MovieLensProblem(folder, **SMALL, most_active=4, n_clients=1, seed=5)
    chunk = problem.stream(8000, None).take(8000)
    places = np.bincount(chunk.rewards.argmax(axis=1), minlength=5)
    assert len(places) == 5 and stats.chisquare(places).pvalue > 1e-3
    others = movies_of(problem, chunk.contexts)[chunk.rewards[:, :5] == 0]
    counts = np.bincount(others, minlength=problem.n_movies)
    assert stats.chisquare(counts[counts > 0]).pvalue > 1e-3


def test_the_seed_changes_places_unrated_movies_and_the_order_of_positives(folder):
    def drawn(seed):
        problem = fsl.MovieLensProblem(folder, **SMALL, most_active=4, n_clients=1, seed=seed)
        chunk = problem.stream(15, None).take(15)
        pays, movies = chunk.rewards[:, :5] == 1, movies_of(problem, chunk.contexts)
        return pays.argmax(axis=1).tolist(), movies[pays].tolist(), movies[~pays].tolist()

    assert drawn(1) == drawn(1)
    assert all(one != other for one, other in zip(drawn(1), drawn(2), strict=True))


@given(st.data())
def test_draw_distinct_gives_different_numbers_below_the_size(data):
    k = data.draw(st.integers(0, 6))
    sizes = np.array(data.draw(st.lists(st.integers(max(k, 1), 9), min_size=1, max_size=20)))
    drawn = draw_distinct(
        np.random.default_rng(data.draw(st.integers(0, 99))).random((len(sizes), k)), sizes
    )
    assert drawn.shape == (len(sizes), k) and (drawn < sizes[:, None]).all() and (drawn >= 0).all()
    assert all(len(set(row)) == k for row in drawn.tolist())


def test_draw_distinct_gives_every_set_with_the_same_probability():
    drawn = np.sort(
        draw_distinct(np.random.default_rng(1).random((20_000, 3)), np.full(20_000, 6)), axis=1
    )
    counts = np.unique(drawn, axis=0, return_counts=True)[1]
    assert len(counts) == 20 and stats.chisquare(counts).pvalue > 1e-3


@given(st.lists(st.sets(st.integers(0, 11)), min_size=1, max_size=5))
def test_absent_movies_are_found(lists):
    who = np.repeat(np.arange(len(lists)), [len(each) for each in lists])
    rated = MoviesByClient.group(
        np.array([m for each in lists for m in each], int), who, len(lists), 12
    )
    for client, each in enumerate(lists):
        expected = sorted(set(range(12)) - each)
        found = rated.find_absent(np.array([client]), np.arange(len(expected))[None])
        assert found.ravel().tolist() == expected


def test_a_user_with_few_unrated_movies_sees_all_of_them_in_every_round(release, tmp_path):
    movies, _, tags = release.make_rows()
    there = [i for i in range(release.N_MOVIES) if i not in release.NAMELESS]
    ratings = [(1, 10 * i, 5) for i in there[4:]]
    where = release.write(tmp_path / "ml", "csv", movies, ratings, tags)
    problem = fsl.MovieLensProblem(where, **SMALL, most_active=1)
    movies = movies_of(problem, problem.stream(200, None).take(200).contexts)
    assert all(len(set(row) & {0, 1, 2, 3}) == 4 for row in movies.tolist())
    with pytest.raises(
        InvalidInput,
        match=r"user 1 has not rated 4 of the 58 movies that can be an arm; n_arms=6 needs 5",
    ):
        fsl.MovieLensProblem(where, dim=6, n_arms=6, most_active=1)


def test_users_take_turns_with_policies_that_sync_all_clients(folder):
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


def test_a_problem_with_an_arrival_object_cannot_be_made_from_its_spec(folder):
    from fedsuplin_plugins.arrivals import Random

    spec = fsl.MovieLensProblem(folder, **SMALL, most_active=4, arrival=Random()).spec
    assert (
        spec["problem"] == "movielens" and spec["parameters"] is None and "Random" in spec["shown"]
    )
    with pytest.raises(InvalidInput, match="can't be made again"):
        make_problem_from_spec(spec)


@pytest.mark.parametrize("style", ["csv", "dat with tags"])
@pytest.mark.parametrize("inside", ["", "ml-latest-small/"])
def test_the_archive_is_read_as_its_folder_is(release, style, inside, tmp_path):
    folder = release.write(tmp_path / "ml", style, *release.make_rows())
    with zipfile.ZipFile(tmp_path / "ml.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in folder.iterdir():
            archive.write(file, inside + file.name)
    ours, theirs = (
        fsl.MovieLensProblem(where, **SMALL, most_active=3)
        for where in (tmp_path / "ml.zip", folder)
    )
    assert (ours.users == theirs.users).all()
    for name in ("contexts", "rewards", "clients"):
        found, expected = (
            getattr(problem.stream(300, None).take(300), name) for problem in (ours, theirs)
        )
        np.testing.assert_array_equal(found, expected)
    again = make_problem_from_spec(ours.spec)
    assert (again._features == ours._features).all()


def test_an_archive_that_is_damaged_is_refused_by_its_name(folder, tmp_path):
    whole = tmp_path / "ml.zip"
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in folder.iterdir():
            archive.write(file, file.name)
    content = whole.read_bytes()
    (tmp_path / "half.zip").write_bytes(content[: len(content) // 2])
    with pytest.raises(InvalidInput, match="half.zip is not a zip file, or not all of it was down"):
        fsl.MovieLensProblem(tmp_path / "half.zip", most_active=2)
    with zipfile.ZipFile(whole) as archive:
        at = archive.getinfo("ratings.csv").header_offset + 60
    (tmp_path / "bad.zip").write_bytes(content[:at] + bytes(40) + content[at + 40 :])
    with pytest.raises(
        InvalidInput, match="ratings.csv in .*bad.zip is damaged: .*Get the archive"
    ):
        fsl.MovieLensProblem(tmp_path / "bad.zip", **SMALL, most_active=2)
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.write(folder / "movies.csv", "movies.csv")
    with pytest.raises(
        InvalidInput, match="other.zip does not hold MovieLens data: .*with ratings"
    ):
        fsl.MovieLensProblem(tmp_path / "other.zip", most_active=2)


def test_standardised_features_have_columns_of_one_spread(folder, release):
    plain, found = (
        fsl.MovieLensProblem(folder, **SMALL, most_active=2, standardise=standardise)
        for standardise in (False, True)
    )
    np.testing.assert_allclose(np.linalg.norm(found._features, axis=1), 1.0, rtol=1e-12)
    columns = plain._features.std(axis=0), found._features.std(axis=0)
    assert columns[1].max() / columns[1].min() < columns[0].max() / columns[0].min()
    assert found.n_movies == plain.n_movies and "standardise=True" in repr(found)
    again = make_problem_from_spec(found.spec)
    assert (again._features == found._features).all()


def test_standardise_is_yes_or_no(folder):
    with pytest.raises(InvalidInput, match="standardise must be True or False, not 'yes'"):
        fsl.MovieLensProblem(folder, most_active=2, standardise="yes")


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


def test_a_folder_that_has_changed_is_read_again(release, folder, tmp_path):
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
        + sum(
            10 * i == movie and rating > 3
            for i in release.NAMELESS
            for _, movie, rating in release.make_rows()[1]
        )
        + 1
    )


def test_compare_makes_the_problem_for_every_seed(folder):
    found = fsl.compare(
        ["oful", "uniform"],
        fsl.MovieLensProblem(folder, **SMALL, most_active=4),
        seeds=4,
        horizon=200,
    )
    assert [result.seed for result in found.runs["oful"]] == [0, 1, 2, 3]
    assert len(set(found.last("uniform", "reward"))) > 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {},
            r"no user has more than 2500 ratings above 3: "
            r"the most active has \d+. Give most_active=",
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


def test_a_folder_without_data_is_refused_with_advice(tmp_path):
    for where, message in (
        (tmp_path / "nowhere", "is not a folder or a zip file"),
        (tmp_path, "does not hold MovieLens data"),
    ):
        with pytest.raises(
            InvalidInput, match=f"{message}: .*movies.csv with ratings.csv or .*grouplens.org"
        ):
            fsl.MovieLensProblem(where, most_active=2)
    with pytest.raises(
        InvalidInput, match="folder must be the path of a MovieLens folder or zip, not 20"
    ):
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
def test_the_error_names_an_unreadable_file(folder, tmp_path, file, text, message):
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
def test_the_error_names_an_unreadable_line_of_a_dat_file(release, tmp_path, file, line):
    mine = release.write(tmp_path / "ml", "dat with tags", *release.make_rows())
    (mine / file).write_text(line + "\n")
    with pytest.raises(InvalidInput, match=f"{file}.*(line 1|MovieLens data)"):
        fsl.MovieLensProblem(mine, **SMALL, most_active=1)


def test_a_missing_extra_is_named(folder, tmp_path, monkeypatch):
    mine = shutil.copytree(folder, tmp_path / "ml")
    for module in ("sklearn.decomposition", "sklearn.feature_extraction.text"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        MissingExtra,
        match=r"MovieLensProblem needs scikit-learn: pip install 'fedsuplin\[datasets\]'",
    ):
        fsl.MovieLensProblem(mine, **SMALL, most_active=2)
