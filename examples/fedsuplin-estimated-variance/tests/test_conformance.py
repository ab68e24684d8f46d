"""Everything that this package registers conforms; the Cython and Python forms agree."""

from fedsuplin.testing import conformance

test_conformance = conformance("fedsuplin-estimated-variance")
