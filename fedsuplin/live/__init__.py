"""Live clients and servers, without a network: choosing, learning, uploads and their binary form."""

from .client import Client, Decision
from .server import Server

__all__ = ["Client", "Decision", "Server"]
