"""The job in ``docs/spark.md`` runs as it stands, but for the address and the folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_connector.__main__ import parser
from tests.spark.logs import border, match
from tests.spark.topics import Topics

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text()
(JOB,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^python -m spark_connector (.*?)(?:  +#.*)?$", PAGE, re.MULTILINE)


def test_the_job_runs(
    spark: SparkSession, topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with topics.transaction():
        topics.send("borders", border("v1", 1, 0, enter=["fast", "slow"]))
        topics.send("borders", border("v1", 2, 5_400_000, leave=["fast"]))
        topics.send("matches", match("v1", 0, ["fast"], attrs={"sog": 12.5}))
        topics.send("matches", match("v1", 0, ["slow"], attrs={"sog": 3}))
    job = JOB.replace('"localhost:9092"', repr(topics.bootstrap)).replace('"tables"', repr(str(tmp_path)))
    assert job.count("kind) for") == 1
    job = job.replace("kind) for", f"kind, prefix={topics.prefix!r}) for")
    exec(compile(job, "docs/spark.md", "exec"), {})
    printed = [line.replace(" ", "") for line in capsys.readouterr().out.splitlines()]
    for line in ("|ais|slow|v1|1970-01-0100:00:00|", "|ais|fast|1|1.5|", "|fast|1|12.5|", "|slow|1|3.0|"):
        assert line in printed


def test_the_commands_parse() -> None:
    assert len(COMMANDS) == 2
    for arguments in COMMANDS:
        assert parser().parse_args(arguments.split()).out == "tables"
