"""The agent: its loop, its sources of frames, the judge in it, and baselines and recordings on disk."""
