"""Detector: from windows of lost seconds to verdicts. Judging and learning are pure: frames in, values out, no I/O.

Few modules touch files: `recording/files.py` reads recordings, `recording/replay.py` and `explain/story.py` go through
them, `models/profiles.py` reads profiles, `explain/timeline_png.py` writes a picture, and `__main__.py` is the command.
Recordings and baselines are written by the agent. An import contract in pyproject.toml holds this.
"""
