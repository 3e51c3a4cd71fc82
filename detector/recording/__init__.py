"""Recordings: frames on disk, and their replay."""
