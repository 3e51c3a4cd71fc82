"""Gangs as a state machine: members, missing members, and the release or give-up of a whole group."""
