"""Scheduler plugins: one module, one plugin, with its `Config` beside it. `scheduler.framework` explains how."""
