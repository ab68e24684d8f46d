"""Problems: synthetic ones, arrays, fixed arms, and data sets."""
