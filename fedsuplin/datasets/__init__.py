"""Problems from data: MovieLens folders, classification data, and tables of rounds that one has logged or made.

pandas and scikit-learn, the extra `datasets`, are imported when a problem needs them and not before.
"""

from .classification import ClassificationProblem, DigitsProblem
from .movielens import MovieLensProblem
from .tables import TableProblem, problem_from_table

__all__ = ["ClassificationProblem", "DigitsProblem", "MovieLensProblem", "TableProblem", "problem_from_table"]
