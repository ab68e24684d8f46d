"""The paper's experiments, and those that it proves but does not measure: `fedsuplin reproduce`."""

from .experiment import Experiment, Options, Outcome
from .reproduction import EXPERIMENTS, reproduce
from .verdicts import Verdict

__all__ = ["EXPERIMENTS", "Experiment", "Options", "Outcome", "Verdict", "reproduce"]
