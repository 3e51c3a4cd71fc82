"""PodMigrationJobs: a place first, the eviction after it (docs/descheduler.md)."""
