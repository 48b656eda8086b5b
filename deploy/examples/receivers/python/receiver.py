"""Receives deliveries of postrider: responds to both validation handshakes, verifies signatures, and processes each event once.

    PORT=3000 WEBHOOK_SECRET=whsec_… python3 deploy/examples/receivers/python/receiver.py
"""

import base64
import hashlib
import hmac
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = os.environ.get("WEBHOOK_SECRET", "")  # "": deliveries are not signed
MOST = 8 << 20
done = set()  # delivery is at least once; a real receiver stores this with its own data
lock = threading.Lock()


def signed(headers, body):
    """Standard Webhooks: one of the signatures must be the HMAC-SHA256 of id.timestamp.body, and the timestamp must be recent."""
    message_id, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "0")
    if not at.isdigit() or abs(time.time() - int(at)) > 300:
        return False
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    want = base64.b64encode(hmac.new(key, f"{message_id}.{at}.".encode() + body, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(s.removeprefix("v1,"), want) for s in headers.get("webhook-signature", "").split())


def once(event, system_id):
    """The key is postrider's own id of the event. A batch has none: two publishers can choose the same id, so their sources count too."""
    key = system_id or (event.get("source") or event.get("topic"), event["id"])
    with lock:
        if key in done:
            return
        done.add(key)
    print("received", event.get("eventType") or event.get("type"), event["id"], flush=True)


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def respond(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_OPTIONS(self):  # the CloudEvents handshake
        self.respond(200, WebHook_Allowed_Origin=self.headers.get("WebHook-Request-Origin", "*"))

    def do_POST(self):
        size = int(self.headers.get("Content-Length", "0"))
        if size > MOST:
            self.close_connection = True
            return self.respond(413)
        body = self.rfile.read(size)
        kind = self.headers.get("aeg-event-type")
        unsigned = kind in ("SubscriptionValidation", "SubscriptionDeletion")
        if SECRET and not unsigned and not signed(self.headers, body):
            # Not 401, which is never retried: with a wrong secret, every event would become a dead letter.
            return self.respond(503, b"invalid signature")
        try:
            events = json.loads(body)
        except ValueError:
            return self.respond(400, b"no events")
        events = events if isinstance(events, list) else [events]
        if kind == "SubscriptionValidation":  # the Event Grid handshake
            code = events[0]["data"]["validationCode"]
            return self.respond(200, json.dumps({"validationResponse": code}).encode(), Content_Type="application/json")
        if kind != "SubscriptionDeletion":
            for event in events:
                once(event, self.headers.get("aeg-output-event-id"))
        return self.respond(200)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    address = ("127.0.0.1", int(os.environ.get("PORT", "3000")))
    server = ThreadingHTTPServer(address, Receiver)
    print(f"listening on {address[0]}:{server.server_port}", flush=True)
    server.serve_forever()
