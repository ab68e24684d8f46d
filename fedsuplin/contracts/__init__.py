"""What plugins are: the protocols, and what they speak of (Setting, Variant, Chunk, Stream, Problem)."""
