"""The paper's experiments, and those that it proves but does not measure: `fedsuplin reproduce`.

Each is a class in a file of its own: its cases are a sweep, what was measured becomes a figure, and every claim gets a verdict
with the numbers. `experiment.py` has what they share, `page.py` the page that holds them all.
"""

from .experiment import Experiment, Options, Outcome
from .page import trouble
from .reproduction import EXPERIMENTS, reproduce
from .verdicts import Verdict

__all__ = ["EXPERIMENTS", "Experiment", "Options", "Outcome", "Verdict", "reproduce", "trouble"]
