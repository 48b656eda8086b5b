"""Receives events of an event subscription with delivery mode Queue, processes and acknowledges them.

    POSTRIDER_URL=http://127.0.0.1:7480 TOPIC_KEY=… python3 pull.py orders ledger
"""

import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

topic, subscription = (urllib.parse.quote(name, safe="") for name in sys.argv[1:3])
queue = f"{os.environ['POSTRIDER_URL']}/topics/{topic}/eventsubscriptions/{subscription}"


def process(event):
    """May be called again for the same event: if the acknowledgment is lost, or comes after the end of the lock."""
    print("received", event["type"], event["id"], json.dumps(event.get("data")), flush=True)


def post(operation, body=None, **parameters):
    query = urllib.parse.urlencode({"api-version": "2024-06-01", **parameters})
    request = urllib.request.Request(
        f"{queue}:{operation}?{query}",
        data=json.dumps(body).encode() if body else b"",
        headers={"aeg-sas-key": os.environ["TOPIC_KEY"], "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=90) as response:
        return json.load(response)


def settle(operation, tokens, **parameters):
    if tokens:
        failed = post(operation, {"lockTokens": tokens}, **parameters)["failedLockTokens"]
        if failed:  # another consumer receives these events
            print(f"{len(failed)} locks had ended: {failed[0]['error']['code']}", file=sys.stderr)


def consume():
    """Waits up to a minute for events. Those that cannot be processed are available again after 10 s."""
    done, failed = [], []
    for delivery in post("receive", maxEvents=100, maxWaitTime=60)["value"]:
        token = delivery["brokerProperties"]["lockToken"]
        try:
            process(delivery["event"])
            done.append(token)
        except Exception as error:
            print(f"{delivery['event']['id']}: {error}", file=sys.stderr)
            failed.append(token)
    settle("acknowledge", done)
    settle("release", failed, releaseDelayInSeconds=10)


while True:
    try:
        consume()
    except OSError as error:  # also an error response
        print(error, file=sys.stderr)
        time.sleep(1)
