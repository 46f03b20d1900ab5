"""Spark and a broker that lets in only who belongs: the settings of the client reach it, from a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from service.log.kafka_security import client_options
from service.settings import load_settings
from spark_connector import tables
from spark_connector.properties import PropertiesError, client_properties
from spark_connector.schemas import BORDERS
from tests.secured_broker import PASSWORD, USER, Secured
from tests.secured_broker import secured as secured
from tests.spark.logs import border


def test_lines_are_settings_and_values_stay_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text('# a note\n\n! another\nsecurity.protocol = SSL\nsasl.jaas.config=x required a="b=c";\n')
    assert client_properties(file) == {
        "security.protocol": "SSL",
        "sasl.jaas.config": 'x required a="b=c";',
    }


@pytest.mark.parametrize(
    "line", ["password hunter2", "=hunter2", "password=hunter2\\", "pass\\ word=hunter2"]
)
def test_a_line_that_is_none_is_named_without_its_value(tmp_path: Path, line: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SSL\n{line}\n")
    with pytest.raises(PropertiesError, match="line 2") as refused:
        client_properties(file)
    assert "hunter2" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PropertiesError, match="nowhere"):
        client_properties(tmp_path / "nowhere")


@pytest.mark.spark
@pytest.mark.kafka
def test_tables_from_a_secured_broker(spark: SparkSession, secured: Secured, tmp_path: Path) -> None:
    options = client_options(load_settings(secured.settings()))
    admin = KafkaAdminClient(bootstrap_servers=secured.address, **options)
    admin.create_topics({"borders": {"num_partitions": 1, "replication_factor": 1}})
    admin.close()
    producer = KafkaProducer(bootstrap_servers=secured.address, **options)
    producer.send("borders", json.dumps(border("a", 1, 1_000, enter=["q"])).encode(), b"a").get(timeout=30)
    producer.close()

    keystore, file = tmp_path / "client.pem", tmp_path / "client.properties"
    shown = secured.authority.sign("spark")
    keystore.write_text(shown.key.read_text() + shown.cert.read_text())
    file.write_text(
        "security.protocol=SASL_SSL\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={secured.authority.cert}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={keystore}\n"
        "sasl.mechanism=PLAIN\nsasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule"
        f' required username="{USER}" password="{PASSWORD}";\n'
    )
    client = client_properties(file)
    out = str(tmp_path / "tables")
    tables.start(spark, secured.address, out, BORDERS, client=client).awaitTermination()
    [row] = tables.read(spark, out, BORDERS).collect()
    assert (row.stream_id, row.enter) == ("a", ["q"])

    wrong = {**client, "sasl.jaas.config": client["sasl.jaas.config"].replace(PASSWORD, "wrong-hunter2")}
    with pytest.raises(PySparkException, match="Authentication failed") as refused:
        tables.start(
            spark, secured.address, str(tmp_path / "other"), BORDERS, client=wrong
        ).awaitTermination()
    assert "hunter2" not in str(refused.value)
