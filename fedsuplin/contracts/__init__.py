"""What plugins are: the protocols, Setting, Variant, Chunk, Stream, Problem and the bounds."""
