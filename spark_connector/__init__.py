"""Spark jobs over Rangewatch's topics: typed records, Parquet tables, visits, and the balance law.

``session`` and ``jars`` start Spark; ``schemas`` and ``records`` turn Kafka messages into typed rows;
``tables`` keeps them as Parquet, exactly once; ``visits`` and ``balance`` are derived from the table of
borders. ``python -m spark_connector`` does all of it in one go.
"""
