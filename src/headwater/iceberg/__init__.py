"""An Iceberg catalog as a library, on PyIceberg: tables, live files, deletes, and commits of both in one snapshot.

PyIceberg 0.12 reads position deletes and does not write them. Manifests, manifest list and snapshot are therefore put
together here, of PyIceberg's own parts, and committed through its catalogs; `tests/iceberg` pins what we rely on.
"""
