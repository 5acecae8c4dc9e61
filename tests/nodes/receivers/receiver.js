// A merchant's receiver of callbacks, with the official JavaScript package. The package knows no v1a, so a
// public key (whpk_...) is checked with Node's own ed25519, by the letter of the specification.
//
// Usage: receiver.js SECRET... ; prints its port, and ends when its input does.
// POST /N verifies under the N-th secret: 200 and the package's own signature of the same, or 401 and why.

const crypto = require("node:crypto");
const http = require("node:http");
const { Webhook, WebhookVerificationError } = require("standardwebhooks");

class PublicKey {
  constructor(text) {
    // An ed25519 key in SPKI form is this prefix and the 32 bytes (RFC 8410).
    const prefix = Buffer.from("302a300506032b6570032100", "hex");
    const key = Buffer.concat([prefix, Buffer.from(text.slice("whpk_".length), "base64")]);
    this.key = crypto.createPublicKey({ key, format: "der", type: "spki" });
  }

  verify(body, headers) {
    const content = `${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${body}`;
    const isGood = headers["webhook-signature"].split(" ").some((versioned) => {
      const [version, signature] = versioned.split(",");
      const bytes = Buffer.from(signature, "base64");
      return version === "v1a" && crypto.verify(null, Buffer.from(content), this.key, bytes);
    });
    if (!isGood) throw new WebhookVerificationError("No matching signature found");
  }

  sign() {
    return "cannot";
  }
}

const keys = process.argv.slice(2).map((text) => (text.startsWith("whpk_") ? new PublicKey(text) : new Webhook(text)));

function receive(request, body) {
  const key = keys[Number(request.url.slice(1))];
  try {
    key.verify(body, request.headers);
    const sent = new Date(Number(request.headers["webhook-timestamp"]) * 1000);
    return [200, key.sign(request.headers["webhook-id"], sent, body)];
  } catch (error) {
    if (error instanceof WebhookVerificationError) return [401, error.message];
    throw error;
  }
}

const server = http.createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const [status, text] = receive(request, Buffer.concat(chunks).toString());
    response.writeHead(status).end(text);
  });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit()).resume();
