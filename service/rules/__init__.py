"""Rule tests: files that say what goes in and which records must come out, played against the real service.

A file is read into *scenarios* (``document``, ``scenarios``, ``expectations``), each scenario is played on a
service of its own (``stage``, ``play``), and what came out is compared and told (``comparison``, ``report``).

Invariant: one path. Queries and events go as bytes through the worker, decoder, engine and encoder of the
service, on its embedded log; nothing here knows what a query means. Not for: measuring, or several workers.
"""
