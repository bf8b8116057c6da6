"""The PostgreSQL database that is mirrored: tables' definitions, publications, slots, event triggers, checks."""
