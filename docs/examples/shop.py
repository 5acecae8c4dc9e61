"""A small shop that is paid through creditd; docs/merchant-guide.md walks through it.

    POST /orders/ID {"item": "tea"}   places an order, once however often it is sent, and says where to pay
    GET  /orders/ID                   what has become of it
    POST /hook                        callbacks of creditd

Needs Python 3.9 or later and the package standardwebhooks. Secrets come from files, the rest from the
environment: CREDITD_API, CREDITD_KEY_FILE, WEBHOOK_SECRET_FILE, SHOP_DATA (the database) and SHOP_PORT.
"""

import http.client
import json
import os
import re
import sqlite3
import threading
import time
import traceback
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks.webhooks import Webhook, WebhookVerificationError


def secret(variable):
    with open(os.environ[variable]) as file:
        return file.read().strip()


API, KEY = os.environ["CREDITD_API"], secret("CREDITD_KEY_FILE")
WEBHOOK = Webhook(secret("WEBHOOK_SECRET_FILE"))
# The shop's own prices, in BTC, as texts: money is never a float, and never what a browser says.
PRICES = {"tea": "0.0005", "teapot": "0.01"}
BODY_BYTES_MAX = 64 * 1024

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (
    id TEXT PRIMARY KEY, item TEXT NOT NULL, amount TEXT NOT NULL,
    invoice TEXT UNIQUE, address TEXT,
    version INTEGER NOT NULL DEFAULT 0,  -- of the newest callback that counted
    note TEXT                            -- for a person to look at
);
-- What the packers work off. One row per order, whatever happens.
CREATE TABLE IF NOT EXISTS shipments (order_id TEXT PRIMARY KEY REFERENCES orders (id));
-- Every callback that was taken in: the row is written in the transaction of what the callback did.
CREATE TABLE IF NOT EXISTS inbox (webhook_id TEXT PRIMARY KEY);
"""


@contextmanager
def transaction():
    """All of it or nothing, one at a time, on the disk when it is over."""
    db = sqlite3.connect(os.environ["SHOP_DATA"], timeout=10, isolation_level=None)
    try:
        db.row_factory = sqlite3.Row
        db.execute("PRAGMA synchronous = FULL")
        db.execute("BEGIN IMMEDIATE")
        yield db
        db.execute("COMMIT")
    finally:
        db.close()  # undoes what was not committed


# ---- orders ------------------------------------------------------------------------------------------------


def place(order_id, item):
    # The order is stored before anything is asked for, so that what is asked for is the same each time.
    with transaction() as db:
        new = "INSERT INTO orders (id, item, amount) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        db.execute(new, (order_id, item, PRICES[item]))
    ask_for_invoice(order_id)


def ask_for_invoice(order_id):
    """Asks for the invoice of an order that has none. Whether an earlier request was lost, or only its reply,
    nobody knows: the same request under the same key makes an invoice in the first case, and finds it in the
    second."""
    with transaction() as db:
        order = db.execute("SELECT * FROM orders WHERE id = ?", (order_id,)).fetchone()
    if order is None or order["invoice"]:
        return
    new = {"asset": "BTC", "amount": order["amount"], "reference": order_id, "expires_in": 3600}
    invoice = post("/v1/invoices", f"order-{order_id}", new)
    with transaction() as db:
        found = "UPDATE orders SET invoice = ?, address = ? WHERE id = ?"
        db.execute(found, (invoice["id"], invoice["address"], order_id))


def post(path, key, body):
    headers = {"Authorization": f"Bearer {KEY}", "Idempotency-Key": key, "Content-Type": "application/json"}
    request = urllib.request.Request(API + path, json.dumps(body).encode(), headers)
    for tries_left in (4, 3, 2, 1, 0):
        wait = 1
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as problem:
            # Only what says when to come again may be another time otherwise. All else is to be mended.
            if "Retry-After" not in problem.headers or not tries_left:
                raise RuntimeError(f"{path}: {problem.code} {problem.read().decode()}") from problem
            wait = int(problem.headers["Retry-After"])
        except (OSError, http.client.HTTPException):
            # No reply: it was done, or not. The same request again says which.
            if not tries_left:
                raise
        time.sleep(wait)


def status(order_id):
    with transaction() as db:
        order = db.execute("SELECT * FROM orders WHERE id = ?", (order_id,)).fetchone()
        shipped = "SELECT count(*) FROM shipments WHERE order_id = ?"
        return order and {**order, "shipments": db.execute(shipped, (order_id,)).fetchone()[0]}


# ---- callbacks ---------------------------------------------------------------------------------------------


def receive(webhook_id, event):
    """Does what a verified callback asks for, once however often it comes."""
    if event["type"] not in ("invoice.settled", "invoice.reversed"):
        return
    invoice = event["data"]
    # Paid before the reply with its number was here? Then that reply was lost: it is asked for again.
    ask_for_invoice(invoice["reference"])
    with transaction() as db:
        taken = db.execute("INSERT INTO inbox VALUES (?) ON CONFLICT DO NOTHING", (webhook_id,))
        if taken.rowcount == 0:
            return  # it is here already, and so is all that it did: one transaction
        order = db.execute("SELECT * FROM orders WHERE invoice = ?", (invoice["invoice"],)).fetchone()
        # A callback that kept failing can come after newer ones: the newest has the last word.
        if order is None or order["version"] >= invoice["version"]:
            return
        is_paid = invoice["life"] == "settled"
        if event["type"] == "invoice.settled" and is_paid:
            settled(db, order, invoice["version"])
        elif event["type"] == "invoice.reversed" and not is_paid:
            taken_back(db, order, invoice["version"])


def settled(db, order, version):
    db.execute("UPDATE orders SET version = ?, note = NULL WHERE id = ?", (version, order["id"]))
    ship = db.execute("INSERT INTO shipments VALUES (?) ON CONFLICT DO NOTHING", (order["id"],))
    if ship.rowcount == 1:
        print(f"ships order {order['id']}", flush=True)


def taken_back(db, order, version):
    # A reorg took the payment, deeper than the confirmations that were waited for. It may come back. Whether
    # a parcel that is on its way can be held is a person's business.
    db.execute("UPDATE orders SET version = ? WHERE id = ?", (version, order["id"]))
    note = "UPDATE orders SET note = ? WHERE id IN (SELECT order_id FROM shipments WHERE order_id = ?)"
    db.execute(note, ("its payment left the chain: hold the parcel", order["id"]))


# ---- http --------------------------------------------------------------------------------------------------


class Shop(BaseHTTPRequestHandler):
    timeout = 15

    def do_GET(self):
        order = status(self.path.removeprefix("/orders/"))
        self.answer(200 if order else 404, order)

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        if length > BODY_BYTES_MAX:
            return self.answer(413)
        body = self.rfile.read(length)
        try:
            code, what = self.hook(body) if self.path == "/hook" else self.order(body)
        except Exception:
            # Not done, as far as anybody knows: customers and creditd come again.
            traceback.print_exc()
            code, what = 503, None
        self.answer(code, what)

    def order(self, body):
        named = re.fullmatch("/orders/([a-z0-9-]{1,40})", self.path)
        item = item_of(body)
        if not named or item not in PRICES:
            return 404, None
        place(named[1], item)
        return 200, status(named[1])

    def hook(self, body):
        # One dictionary for the check and for the id: of two headers of one name each could else take
        # another.
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            # Over the bytes as they came: parsed and printed again they would be others. Old ones are refused
            # too.
            event = WEBHOOK.verify(body, headers)
        except (WebhookVerificationError, ValueError):
            return 401, None
        # Committed first, then answered: whatever fails in between has the callback sent again.
        receive(headers["webhook-id"], event)
        return 200, None

    def answer(self, code, what=None):
        body = json.dumps(what).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def item_of(body):
    try:
        return json.loads(body)["item"]
    except (ValueError, KeyError, TypeError):
        return None


def main():
    with transaction() as db:
        for statement in SCHEMA.split(";"):
            db.execute(statement)
        unasked = [row["id"] for row in db.execute("SELECT id FROM orders WHERE invoice IS NULL")]
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["SHOP_PORT"])), Shop)
    threading.Thread(target=server.serve_forever).start()
    print(f"open at http://127.0.0.1:{server.server_port}", flush=True)
    # Where the shop died between an order and its invoice. What fails here is asked for when the customer
    # comes again.
    for order_id in unasked:
        ask_for_invoice(order_id)


if __name__ == "__main__":
    main()
