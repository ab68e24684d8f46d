"""A live federation over a network: clients that choose and learn where they are, and a server that keeps the sums."""
