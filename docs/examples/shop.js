// A small shop that is paid through creditd; docs/merchant-guide.md walks through it.
//
//   POST /orders/ID {"item": "tea"}   places an order, once however often it is sent, and says where to pay
//   GET  /orders/ID                   what has become of it
//   POST /hook                        callbacks of creditd
//
// Needs Node 18 or later and the package standardwebhooks. Secrets come from files, the rest from the
// environment: CREDITD_API, CREDITD_KEY_FILE, WEBHOOK_SECRET_FILE, SHOP_DATA (a folder) and SHOP_PORT.
//
// Node has no database that is stable, so an order is a file that is replaced as a whole: what it says of the
// order and which callbacks it has taken in changes in one rename, or not at all. That holds because one
// process alone writes them, one synchronous step at a time. A shop of several processes needs a database
// with transactions and unique constraints, as shop.py has.

const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");
const { Webhook } = require("standardwebhooks");

const { CREDITD_API, SHOP_DATA, SHOP_PORT } = process.env;
const secret = (variable) => fs.readFileSync(process.env[variable], "utf8").trim();
const KEY = secret("CREDITD_KEY_FILE");
const WEBHOOK = new Webhook(secret("WEBHOOK_SECRET_FILE"));
// The shop's own prices, in BTC, as texts: money is never a float, and never what a browser says.
const PRICES = new Map([["tea", "0.0005"], ["teapot", "0.01"]]);
const BODY_BYTES_MAX = 64 * 1024;

// ---- the files --------------------------------------------------------------------------------------------

const isId = (id) => /^[a-z0-9-]{1,40}$/.test(id);
const fileOf = (id) => path.join(SHOP_DATA, `${id}.json`);

function load(id) {
  if (!isId(id) || !fs.existsSync(fileOf(id))) return null;
  return JSON.parse(fs.readFileSync(fileOf(id), "utf8"));
}

// Readers see the old file or the new one, and after a crash one of the two is there.
function save(order) {
  const file = fileOf(order.id);
  fs.writeFileSync(`${file}.new`, JSON.stringify(order));
  sync(`${file}.new`);
  fs.renameSync(`${file}.new`, file);
  sync(SHOP_DATA);
}

function sync(name) {
  const handle = fs.openSync(name, "r");
  fs.fsyncSync(handle);
  fs.closeSync(handle);
}

// ---- orders -----------------------------------------------------------------------------------------------

async function place(id, item) {
  // The order is stored before anything is asked for, so that what is asked for is the same each time.
  if (!load(id)) {
    const unpaid = { version: 0, shipments: 0, note: null, inbox: [] };
    save({ id, item, amount: PRICES.get(item), invoice: null, address: null, ...unpaid });
  }
  await askForInvoice(id);
}

// Asks for the invoice of an order that has none. Whether an earlier request was lost, or only its reply,
// nobody knows: the same request under the same key makes an invoice in the first case and finds it in the
// second.
async function askForInvoice(id) {
  const order = load(id);
  if (!order || order.invoice) return;
  const wanted = { asset: "BTC", amount: order.amount, reference: id, expires_in: 3600 };
  const invoice = await post("/v1/invoices", `order-${id}`, wanted);
  // Loaded again: others may have changed it meanwhile.
  save({ ...load(id), invoice: invoice.id, address: invoice.address });
}

async function post(to, key, body) {
  const headers = {
    authorization: `Bearer ${KEY}`,
    "idempotency-key": key,
    "content-type": "application/json",
  };
  const text = JSON.stringify(body);
  for (let triesLeft = 4; ; triesLeft -= 1) {
    let waitSecs = 1;
    try {
      const signal = AbortSignal.timeout(30_000);
      const reply = await fetch(CREDITD_API + to, { method: "POST", headers, body: text, signal });
      const said = await reply.text();
      if (reply.ok) return JSON.parse(said);
      // Only what says when to come again may be another time otherwise. All else is to be mended.
      if (!reply.headers.has("retry-after")) throw new Refused(`${to}: ${reply.status} ${said}`);
      waitSecs = Number(reply.headers.get("retry-after"));
    } catch (error) {
      // No reply: it was done, or not. The same request again says which.
      if (error instanceof Refused) throw error;
    }
    if (triesLeft === 0) throw new Error(`${to}: no answer, however often it was asked`);
    await new Promise((done) => setTimeout(done, waitSecs * 1000));
  }
}

class Refused extends Error {}

// ---- callbacks --------------------------------------------------------------------------------------------

// Does what a verified callback asks for, once however often it comes.
async function receive(webhookId, event) {
  if (!["invoice.settled", "invoice.reversed"].includes(event.type)) return;
  const invoice = event.data;
  // Paid before the reply with its number was here? Then that reply was lost: it is asked for again.
  await askForInvoice(invoice.reference);
  // From here to `save` nothing waits, so nothing else happens in between.
  const order = load(invoice.reference);
  if (!order || order.invoice !== invoice.invoice) return;
  if (order.inbox.includes(webhookId)) return; // it is here already, and so is all that it did: one file
  order.inbox.push(webhookId);
  const isPaid = invoice.life === "settled";
  let isShipped = false;
  // A callback that kept failing can come after newer ones: the newest has the last word.
  if (invoice.version > order.version) {
    if (event.type === "invoice.settled" && isPaid) {
      Object.assign(order, { version: invoice.version, note: null });
      isShipped = order.shipments === 0;
      order.shipments = 1;
    } else if (event.type === "invoice.reversed" && !isPaid) {
      // A reorg took the payment, deeper than the confirmations that were waited for. It may come back.
      // Whether a parcel that is on its way can be held is a person's business.
      order.version = invoice.version;
      if (order.shipments > 0) order.note = "its payment left the chain: hold the parcel";
    }
  }
  save(order);
  if (isShipped) console.log(`ships order ${order.id}`);
}

// ---- http -------------------------------------------------------------------------------------------------

async function read(request) {
  const chunks = [];
  let size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    if (size > BODY_BYTES_MAX) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

async function hook(request, body) {
  let event;
  try {
    // Over the bytes as they came: parsed and printed again they would be others. Old ones are refused too.
    event = WEBHOOK.verify(body, request.headers);
  } catch {
    return [401];
  }
  // On the disk first, then answered: whatever fails in between has the callback sent again.
  await receive(request.headers["webhook-id"], event);
  return [200];
}

async function answer(request) {
  const id = request.url.replace("/orders/", "");
  if (request.method === "GET") return load(id) ? [200, load(id)] : [404];
  const body = await read(request);
  if (!body) return [413];
  if (request.url === "/hook") return hook(request, body);
  const item = itemOf(body);
  if (!isId(id) || !PRICES.has(item)) return [404];
  await place(id, item);
  return [200, load(id)];
}

function itemOf(body) {
  try {
    return JSON.parse(body)?.item;
  } catch {
    return undefined;
  }
}

const server = http.createServer(async (request, response) => {
  // Not done, as far as anybody knows: customers and creditd come again.
  let [status, what] = [503, null];
  try {
    [status, what] = await answer(request);
  } catch (error) {
    console.error(error);
  }
  response.statusCode = status;
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify(what ?? null));
});

// The port is also what keeps a second process away from the files.
server.listen(Number(SHOP_PORT), "127.0.0.1", async () => {
  console.log(`open at http://127.0.0.1:${server.address().port}`);
  // Where the shop died between an order and its invoice. What fails here is asked for when the customer
  // comes again.
  for (const name of fs.readdirSync(SHOP_DATA)) {
    if (name.endsWith(".json")) await askForInvoice(name.replace(".json", "")).catch(console.error);
  }
});
