"""koord-descheduler: pods that had better run elsewhere, chosen by plugins (docs/descheduler.md)."""
