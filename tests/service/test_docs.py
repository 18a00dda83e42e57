"""The documentation of the service is correct: its requests work, and the API page matches the service."""

import json
import re
import shlex
import shutil
import subprocess
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import httpx
import pytest

from nearcast.workload.city import City
from service.running_service import in_process
from service.serve_process import run_serve, wait_ready

ROOT = Path(__file__).parents[2]
BLOCKS = re.compile(r"^```sh\n(.*?)^```", re.M | re.S)


def requests_of(page):
    """Return the requests of a page as commands; endless ones get a time limit."""
    blocks = [block for block in BLOCKS.findall((ROOT / "docs" / page).read_text()) if "curl" in block]
    return [block.replace("curl -N", "curl -N --max-time 1") for block in blocks]


def load_tool(name):
    """Import a script of tools/."""
    spec = spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    tool = module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_the_python_page_matches_the_docstrings():
    tool = load_tool("python_page")
    assert tool.page() == tool.PAGE.read_text(), "regenerate it with python tools/python_page.py"


async def test_the_api_page_matches_the_service(tmp_path):
    tool = load_tool("api_page")
    async with in_process(tmp_path) as client:
        description = (await client.get("/openapi.json")).json()
    assert tool.page(description) == tool.PAGE.read_text(), "regenerate it with python tools/api_page.py"


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_the_requests_of_the_tutorial_work(tmp_path):
    with run_serve(tmp_path, "--city", "0", "--window", "300s") as (_, address):
        with httpx.Client(base_url=address, timeout=600) as client:
            wait_ready(client)
            bodies = [{"id": m.id, "location": m.location, "text": m.text} for m in City().messages(50)]
            client.post("/v1/messages", json=bodies).raise_for_status()
        answers = []
        for block in requests_of("tutorial.md"):
            script = f"at={address}\n" + re.sub(r"^at=.*\n", "", block).replace("512.2", "1.0")
            ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
            assert ran.returncode in (0, 28), (script, ran.stderr)  # 28: the time limit ended it
            answers.append(ran.stdout)
    subscribed, results, _, resumed, published, explanation, box, several, filtered, invalid = answers
    assert json.loads(subscribed)["created"] == ["my-jazz"]
    assert json.loads(results)["results"], "the window contains some"
    assert resumed.startswith("event: ready")
    assert json.loads(published)["messages"] == 1
    assert json.loads(explanation)["passes"] and json.loads(explanation)["parts"]
    assert json.loads(box)["created"] == ["my-sweets"]
    assert json.loads(several)["created"] == ["my-ramen", "my-offer", "my-feed"]
    assert json.loads(filtered)["replaced"] == ["my-jazz"]
    assert json.loads(invalid)["errors"] == [{"field": "alpha", "rule": "must be in [0, 1]", "value": 1.7}]


HOW_TO = sorted(page.name for page in (ROOT / "docs" / "how-to").glob("*.md"))


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
@pytest.mark.parametrize("page", HOW_TO)
def test_the_requests_of_a_guide_work_in_the_service_that_it_starts(page, tmp_path):
    (command,) = re.findall(r"^nearcast serve .*$", (ROOT / "docs" / "how-to" / page).read_text(), re.M)
    options = shlex.split(command)[2:]
    del options[options.index("--data") : options.index("--data") + 2]
    with run_serve(tmp_path, *options) as (_, address):
        with httpx.Client(base_url=address, timeout=600) as client:
            wait_ready(client)
        (block,) = requests_of(f"how-to/{page}")
        script = f"set -e\nat={address}\n" + re.sub(r"^at=.*\n", "", block).replace(
            "curl ", "curl -sS --fail-with-body "
        )
        ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
        assert ran.returncode == 0, (ran.stdout, ran.stderr)
    assert '"created":["' in ran.stdout
    if "saved-searches" in page:
        assert '"name":"require","value":0.0' in ran.stdout
    else:
        assert '"passes":true' in ran.stdout and '"highlights":[{' in ran.stdout


def test_every_guide_is_linked_from_the_readme():
    readme = (ROOT / "README.md").read_text()
    assert [page for page in HOW_TO if f"docs/how-to/{page}" not in readme] == []
