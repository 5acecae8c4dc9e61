"""A merchant's receiver of callbacks, with the official Python package.

Usage: receiver.py SECRET... ; prints its port, and ends when its input does.
POST /N verifies under the N-th secret: 200 and the package's own signature of the same, or 401 and why.
"""

import sys
import threading
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

WEBHOOKS = [Webhook(secret) for secret in sys.argv[1:]]


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        webhook = WEBHOOKS[int(self.path[1:])]
        try:
            webhook.verify(body, dict(self.headers))
            sent = datetime.fromtimestamp(int(self.headers["webhook-timestamp"]), tz=timezone.utc)
            self.answer(200, webhook.sign(self.headers["webhook-id"], sent, body.decode()))
        except WebhookVerificationError as error:
            self.answer(401, str(error))

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
