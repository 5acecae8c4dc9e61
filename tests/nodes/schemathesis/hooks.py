"""What a client does with every request, whatever it asks: keys of its own, and the signature of a source."""

import hashlib
import hmac
import itertools
import os
import re

import schemathesis
from requests.auth import AuthBase

NUMBERS = itertools.count()
# As the document has it.
KEY = re.compile("[!#-~][!-~]{0,255}")


class Signed(AuthBase):
    """Of an inbox source: over the bytes as they are sent."""

    def __call__(self, request):
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        secret = os.environ["INBOX_SECRET"].encode()
        request.headers["X-Signature"] = hmac.new(secret, body, hashlib.sha256).hexdigest()
        return request


@schemathesis.hook
def before_call(context, case, kwargs):
    # The same key for every request would have all but the first refused before they are read.
    key = case.headers.get("Idempotency-Key")
    if isinstance(key, str) and KEY.fullmatch(key):
        case.headers["Idempotency-Key"] = f"request-{next(NUMBERS)}"
    if case.operation.path == "/v1/inbox/{source}":
        kwargs["auth"] = Signed()
