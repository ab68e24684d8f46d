"""Everything that this package registers keeps what fedsuplin asks of a plugin."""

from fedsuplin.testing import conformance

test_conformance = conformance("fedsuplin-demo")
