"""Forecasts of the next hour's peak for many series at once, and their trial against the past. See docs/forecast.md."""
