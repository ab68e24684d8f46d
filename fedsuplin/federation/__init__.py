"""A live federation over a network: its server, its clients, and what both keep on disk."""
