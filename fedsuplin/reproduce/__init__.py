"""The experiments of `fedsuplin reproduce`: the paper's own, and its theorems measured."""

from .experiment import Experiment, Options, Outcome
from .reproduction import EXPERIMENTS, reproduce
from .verdicts import Verdict

__all__ = ["EXPERIMENTS", "Experiment", "Options", "Outcome", "Verdict", "reproduce"]
