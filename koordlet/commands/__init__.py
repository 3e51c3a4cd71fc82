"""Subcommands of `koordlet`, a module each; they import their rooms only when they are called."""
