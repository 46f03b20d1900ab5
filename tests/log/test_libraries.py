"""Which client library the Kafka log uses."""

from __future__ import annotations

import subprocess
import sys

import pytest

from service.log.kafka_library import AUTO, CONFLUENT_KAFKA, KAFKA_PYTHON, chosen, is_installed, library
from service.settings import SettingsError, load_settings

#: So that confluent-kafka cannot be found.
WITHOUT = "import sys; sys.modules['confluent_kafka'] = None\n"


def test_the_native_library_is_taken_where_it_is() -> None:
    assert chosen(AUTO) == library(AUTO).name == CONFLUENT_KAFKA
    for name in (KAFKA_PYTHON, CONFLUENT_KAFKA):
        assert is_installed(name)
        assert chosen(name) == library(name).name == name


def test_the_other_one_is_taken_where_it_is_not() -> None:
    code = WITHOUT + (
        "from service.log.kafka_library import *\n"
        "from service.log.kafka import KafkaLog\n"
        "assert library('auto').name == chosen('auto') == 'kafka-python'\n"
        "assert not is_installed('confluent-kafka')\n"
        "KafkaLog('nowhere:1', transactional_id='t', client='auto')\n"
        "from service.cli.errors import CliError\n"
        "from service.cli.serve import open_log\n"
        "from service.settings import Settings\n"
        "try:\n"
        "    open_log(Settings(log='kafka:nowhere:1', kafka_client='confluent-kafka'))\n"
        "except CliError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == "setting 'kafka_client': confluent-kafka is not installed (the extra: fast)\n"


def test_a_library_that_is_not_known_is_refused() -> None:
    with pytest.raises(SettingsError, match="kafka_client"):
        load_settings({"kafka_client": "another"})
