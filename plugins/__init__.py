"""The built-in plugins of fedsuplin, registered through the same entry points and hooks as anyone else's."""
