from typing import Any

from scipy import LowLevelCallable

TRIGGERS: tuple[str, ...]
WEIGHTINGS: tuple[str, ...]

def trigger(name: str, *parameters: float) -> LowLevelCallable: ...
def weighting(name: str, *parameters: float) -> LowLevelCallable: ...

class Rule:
    name: str
    error: BaseException | None
    def __init__(self, plugin: Any, method: str, result: str) -> None: ...
    def __call__(self, first: float, second: float) -> float: ...
