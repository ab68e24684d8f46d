"""The built-in plugins of fedsuplin, registered through the same hooks as all others."""
