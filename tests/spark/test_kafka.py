"""A job reads from a real Kafka broker and writes to it; Maven provides broker and connector."""

import json
import shutil
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from nearcast.spark.java import find_java

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(shutil.which("mvn") is None, reason="needs Maven to get a broker"),
]

BROKER = ["org.apache.kafka:kafka_2.13:4.1.0", "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
          "org.apache.logging.log4j:log4j-core:2.24.3"]  # fmt: skip
CONNECTOR = ["org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
             "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
             "org.apache.kafka:kafka-clients:3.9.1", "org.apache.commons:commons-pool2:2.12.1"]  # fmt: skip
"""The newest versions there are; a connector for the newest Spark may be missing."""
ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
SERVER = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/logs
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
JOB = """
[space]
bounds = [0.0, 0.0, 1.0, 1.0]
[messages]
format = "kafka"
options = {{"kafka.bootstrap.servers" = "{broker}", subscribe = "messages", startingOffsets = "earliest"}}
[subscriptions]
format = "json"
path = "subscriptions"
[updates]
format = "kafka"
options = {{"kafka.bootstrap.servers" = "{broker}", topic = "updates"}}
[rejected]
format = "kafka"
options = {{"kafka.bootstrap.servers" = "{broker}", topic = "rejected"}}
[run]
checkpoint = "checkpoint"
trigger = "available now"
"""
ROWS = [{"id": "m1", "x": 0.2, "y": 0.3, "text": "Coffee sale"}, {"id": "m2", "x": 9.0, "y": 0.3, "text": "coffee"}]
SUBSCRIPTION = {"id": "b1", "kind": "boolean", "xmin": 0, "ymin": 0, "xmax": 0.5, "ymax": 0.5, "keywords": "coffee"}
TOPICS = """
import json, sys
from nearcast.spark import session

jars, broker, rows = sys.argv[1:]
spark = session(settings={"spark.jars": jars, "spark.ui.enabled": "false"}, master="local[1]")
at = {"kafka.bootstrap.servers": broker}
if rows != "read":
    values = spark.createDataFrame([(row,) for row in json.loads(rows)], "value string").coalesce(1)
    values.write.format("kafka").options(topic="messages", **at).save()
else:
    for topic in ("updates", "rejected"):
        frame = spark.read.format("kafka").options(subscribe=topic, **at).load()
        for row in frame.selectExpr("cast(key AS string) AS key", "cast(value AS string) AS value").collect():
            print(json.dumps([topic, row.key, json.loads(row.value)]))
spark.stop()
"""


def fetch(folder, packages, *, alone):
    """Let Maven copy packages into a folder; `alone` leaves out what they depend on."""
    folder.mkdir()
    names = ("groupId", "artifactId", "version")
    entries = [
        "".join(f"<{name}>{part}</{name}>" for name, part in zip(names, package.split(":"), strict=True))
        + (ALONE if alone else "")
        for package in packages
    ]
    dependencies = "".join(f"<dependency>{entry}</dependency>" for entry in entries)
    project = "<modelVersion>4.0.0</modelVersion><groupId>t</groupId><artifactId>t</artifactId><version>1</version>"
    (folder / "pom.xml").write_text(f"<project>{project}<dependencies>{dependencies}</dependencies></project>")
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"Maven cannot get the packages: {done.stdout[-300:]}")
    return sorted(folder.glob("*.jar"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def broker(tmp_path):
    """Start a broker and return its address."""
    jars = fetch(tmp_path / "broker", BROKER, alone=False)
    port, config = free_port(), tmp_path / "server.properties"
    config.write_text(SERVER.format(port=port, controller=free_port(), folder=tmp_path))
    java = [str(find_java() / "bin" / "java"), "-Xmx512m", "-cp", ":".join(map(str, jars))]
    cluster = uuid.uuid4().hex[:22]
    subprocess.run([*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", config], check=True)
    with (tmp_path / "broker.log").open("w") as log:
        process = subprocess.Popen([*java, "kafka.Kafka", config], stdout=log, stderr=subprocess.STDOUT)
    while not is_open(port):
        assert process.poll() is None, (tmp_path / "broker.log").read_text()[-3000:]
    yield f"127.0.0.1:{port}"
    process.kill()
    process.wait()


def test_a_job_goes_from_kafka_to_kafka(broker, tmp_path):
    jars = ",".join(map(str, fetch(tmp_path / "connector", CONNECTOR, alone=True)))
    values = [*map(json.dumps, ROWS), "nonsense"]

    def topics(rows):
        return subprocess.run(
            [sys.executable, "-c", TOPICS, jars, broker, rows], stdout=subprocess.PIPE, text=True, check=True
        ).stdout

    topics(json.dumps(values))
    Path(tmp_path, "subscriptions").mkdir()
    Path(tmp_path, "subscriptions", "all.json").write_text(json.dumps(SUBSCRIPTION))
    job = tmp_path / "job.toml"
    job.write_text(JOB.format(broker=broker))
    command = [
        sys.executable,
        "-m",
        "nearcast.cli",
        "run",
        job,
        "--master",
        "local[2]",
        "--conf",
        f"spark.jars={jars}",
    ]
    subprocess.run(command, check=True)
    written = [json.loads(line) for line in topics("read").splitlines()]
    update = {"seq": 1, "subscription": "b1", "message": "m1", "change": "enter", "score": 1.0}
    assert [row for row in written if row[0] == "updates"] == [["updates", "b1", update]]
    rejected = [(key, value["source"]) for topic, key, value in written if topic == "rejected"]
    assert rejected == [(None, "message")] * 2
