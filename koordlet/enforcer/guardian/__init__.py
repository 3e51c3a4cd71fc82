"""The guardian: a small process that restores actions when the agent dies, hangs or has no successor."""
