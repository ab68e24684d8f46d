"""Everything that this package registers keeps what fedsuplin asks of a plugin; Cython and Python form agree."""

from fedsuplin.testing import conformance

test_conformance = conformance("fedsuplin-estimated-variance")
