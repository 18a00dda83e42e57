"""Do the pages about the service tell the truth? Their requests are sent, and the list of requests is its own."""

import json
import re
import shutil
import subprocess
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import httpx
import pytest

from nearcast.workload.city import City
from service.served import serving
from service.test_serve import started, until_ready

ROOT = Path(__file__).parents[2]
BLOCKS = re.compile(r"^```sh\n(.*?)^```", re.M | re.S)


def requests_of(page):
    """Return the requests of a page, each as a command; those that wait for ever are told to end."""
    blocks = [block for block in BLOCKS.findall((ROOT / "docs" / page).read_text()) if "curl" in block]
    return [block.replace("curl -N", "curl -N --max-time 1") for block in blocks]


async def test_the_page_of_the_api_is_what_the_service_says(tmp_path):
    spec = spec_from_file_location("api_page", ROOT / "tools" / "api_page.py")
    tool = module_from_spec(spec)
    spec.loader.exec_module(tool)
    async with serving(tmp_path) as client:
        said = (await client.get("/openapi.json")).json()
    assert tool.page(said) == tool.PAGE.read_text(), "python tools/api_page.py writes it anew"


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_the_tutorial_works_as_it_stands(tmp_path):
    with started(tmp_path, "--city", "0", "--window", "300s") as (_, address):
        with httpx.Client(base_url=address, timeout=60) as client:
            until_ready(client)
            said = [{"id": m.id, "location": m.location, "text": m.text} for m in City().messages(50)]
            client.post("/v1/messages", json=said).raise_for_status()
        answers = []
        for block in requests_of("tutorial.md"):
            script = f"at={address}\n" + re.sub(r"^at=.*\n", "", block).replace("512.2", "1.0")
            ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
            assert ran.returncode in (0, 28), (script, ran.stderr)  # 28: listened for as long as it was to
            answers.append(ran.stdout)
    subscribed, results, _, again, published, why, box, several, wrong = answers
    assert json.loads(subscribed)["created"] == ["my-jazz"]
    assert json.loads(results)["results"], "the window holds some"
    assert again.startswith("event: ready")
    assert json.loads(published)["messages"] == 1
    assert json.loads(why)["passes"] and json.loads(why)["parts"]
    assert json.loads(box)["created"] == ["my-sweets"]
    assert json.loads(several)["created"] == ["my-ramen", "my-offer", "my-friends"]
    assert json.loads(wrong)["errors"] == [{"field": "alpha", "rule": "must be in [0, 1]", "value": 1.7}]
