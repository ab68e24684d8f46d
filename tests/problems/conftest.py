"""A made-up MovieLens release, for the tests of problems from data."""

import numpy as np
import pandas as pd
import pytest

WORDS = ("dark", "funny", "space", "ocean", "love", "war", "robot", "quiet", "music", "road")


class Release:
    """Make the rows of a release, and write them as a folder in one of three styles."""

    N_MOVIES = 60
    NAMELESS = (11, 59)  # movies with neither genres nor tags

    def make_rows(self, seed=0):
        """Return movies, ratings and tags: sixty movies, four users with fewer and fewer ratings.

        Each movie has a tag of its own, so that all features differ.
        """
        rng = np.random.default_rng(seed)
        movies = [
            (
                10 * i,
                f'"Quotes", Colons: Movie é {i} (1999)',
                "" if i in self.NAMELESS else f"{WORDS[i % 10].title()}|{WORDS[i % 7]}",
            )
            for i in range(self.N_MOVIES)
        ]
        tags = [
            (3, 10 * i, f"Own-word{chr(97 + i // 26)}{chr(97 + i % 26)} null")
            for i in range(self.N_MOVIES)
            if i not in self.NAMELESS
        ]
        ratings = [
            (user, 10 * int(movie), int(rng.integers(1, 6)))
            for user, n in ((3, 45), (5, 30), (8, 25), (9, 12))
            for movie in rng.choice(self.N_MOVIES, n, replace=False)
        ]
        return movies, ratings, tags

    def write(self, folder, style, movies, ratings, tags):
        """Write the folder in a style: "csv", "dat" or "dat with tags". Return the folder."""
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
        encoding = "latin-1" if style == "dat" else "utf-8"
        for name, lines in rows.items():
            text = "".join("::".join(map(str, line)) + "\n" for line in lines)
            (folder / f"{name}.dat").write_bytes(text.encode(encoding))
        return folder


@pytest.fixture(scope="session")
def release():
    """Return the made-up release."""
    return Release()


@pytest.fixture(scope="session")
def folder(release, tmp_path_factory):
    """Return a folder with the made-up release in the "csv" style."""
    return release.write(
        tmp_path_factory.mktemp("data") / "ml-made-up", "csv", *release.make_rows()
    )
