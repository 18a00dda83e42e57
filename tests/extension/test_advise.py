"""`nearcast advise` estimates and runs a registered partitioner like any other."""

import json

from nearcast.cli import main


def test_a_registered_partitioner_is_estimated_and_run(capsys):
    small = ["--kind", "boolean", "--shards", "2", "--subscriptions", "300", "--sample", "400", "--json"]
    assert main(["advise", *small, "--partitioner", "hash", "--partitioner", "reversed"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in report["partitioners"]} == {"hash", "reversed"}
    assert all(row["messages_per_second"] > 0 for row in report["partitioners"])
