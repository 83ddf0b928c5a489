"""The main job, done with a client that a generator made of the daemon's document. Called by check-api.

check-api.py FOLDER: FOLDER has the generated package ashlar_client and room for members; the environment variable
ASHLAR_SOCKET names the control socket.
"""

import os
import sys
import time

import httpx
from ashlar_client import Client
from ashlar_client.api.arrays import arrays_assemble, arrays_create, arrays_stop
from ashlar_client.api.jobs import jobs_scrub
from ashlar_client.api.members import members_fail, members_replace
from ashlar_client.api.status import status
from ashlar_client.models import (
    ApiError, ArrayState, Assemble, Create, Fail, MemberState, Replace, ScrubStart, Stop,
)

folder = sys.argv[1]
transport = httpx.HTTPTransport(uds=os.environ["ASHLAR_SOCKET"])
client = Client(base_url="http://localhost", httpx_args={"transport": transport}, timeout=120)


def member(number):
    path = f"{folder}/member{number}"
    with open(path, "wb") as file:
        file.truncate(64 << 20)
    return path


def array():
    [found] = status.sync(client=client).arrays
    return found


def until(what, is_so):
    for _ in range(1800):
        if is_so(array()):
            return
        time.sleep(0.1)
    raise SystemExit(f"waited in vain until {what}: {array()}")


def done(answer):
    assert not isinstance(answer, ApiError), answer
    return answer


members = [member(number) for number in range(5)]
created = done(arrays_create.sync(client=client, body=Create(name="tank0", level="raid6", devices=members)))
assert created.changed and created.volume_bytes > 0, created
again = arrays_create.sync(client=client, body=Create(name="tank0", level="raid6", devices=members))
assert isinstance(again, ApiError) and "." in again.code and again.message, again
assert array().state == ArrayState.CLEAN and array().policy == "log", array()

done(members_fail.sync(client=client, body=Fail(array="tank0", member="2")))
assert array().state == ArrayState.DEGRADED and array().members[2].state == MemberState.OUT, array()
done(members_replace.sync(client=client, body=Replace(array="tank0", member="2", device=member(5))))
until("the rebuild is complete", lambda it: it.state == ArrayState.CLEAN and not it.jobs)
done(jobs_scrub.sync(client=client, body=ScrubStart(array="tank0")))
until("the scrub is complete", lambda it: it.last_scrub and not it.jobs)
assert array().last_scrub.mismatches == 0, array()

# What the schema does not know is refused, with its name, and nothing is done.
wrong = {"array": "tank0", "forse": True}
refused = client.get_httpx_client().post("/v1/arrays/stop", json=wrong)
refusal = ApiError.from_dict(refused.json())
assert refused.status_code == 400 and refusal.code == "request.malformed" and "forse" in refusal.message, refusal
assert array().name == "tank0"

lines = [line for line in client.get_httpx_client().get("/v1/events").text.splitlines() if "member.failed" in line]
assert len(lines) == 1, lines

done(arrays_stop.sync(client=client, body=Stop(array="tank0")))
assert status.sync(client=client).arrays == []
devices = members[:2] + members[3:] + [f"{folder}/member5"]
done(arrays_assemble.sync(client=client, body=Assemble(devices=devices)))
assert array().state == ArrayState.CLEAN, array()
done(arrays_stop.sync(client=client, body=Stop(array="tank0")))
print("a generated Python client did the main job")
