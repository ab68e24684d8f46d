"""Live clients and servers without a network: choose, learn, and exchange sums."""

from .client import Client, Decision
from .server import Server

__all__ = ["Client", "Decision", "Server"]
