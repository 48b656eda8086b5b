// Receives deliveries of postrider: responds to both validation handshakes, verifies signatures, and processes each event once.
//
//   PORT=3000 WEBHOOK_SECRET=whsec_… node deploy/examples/receivers/javascript/receiver.mjs
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const secret = process.env.WEBHOOK_SECRET ?? ""; // "": deliveries are not signed
const port = Number(process.env.PORT ?? 3000);
const most = 8 << 20;
const done = new Set(); // delivery is at least once; a real receiver stores this with its own data

// Standard Webhooks: one of the signatures must be the HMAC-SHA256 of id.timestamp.body, and the timestamp must be recent.
function signed(headers, body) {
  const { "webhook-id": id, "webhook-timestamp": at, "webhook-signature": signatures = "" } = headers;
  if (Math.abs(Date.now() / 1000 - Number(at)) > 300) return false;
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  const want = createHmac("sha256", key).update(`${id}.${at}.`).update(body).digest();
  return signatures.split(" ").some((signature) => {
    const got = Buffer.from(signature.replace(/^v1,/, ""), "base64");
    return got.length === want.length && timingSafeEqual(got, want);
  });
}

async function read(request) {
  const parts = [];
  let size = 0;
  for await (const part of request) {
    if ((size += part.length) > most) throw new Error("too large");
    parts.push(part);
  }
  return Buffer.concat(parts);
}

// The key is postrider's own id of the event. A batch has none: two publishers can choose the same id, so their sources count too.
function once(event, systemId) {
  const key = systemId ?? JSON.stringify([event.source ?? event.topic, event.id]);
  if (done.has(key)) return;
  done.add(key);
  console.log(`received ${event.eventType ?? event.type} ${event.id}`);
}

async function take(request, response) {
  if (request.method === "OPTIONS") { // the CloudEvents handshake
    return response.writeHead(200, { "WebHook-Allowed-Origin": request.headers["webhook-request-origin"] ?? "*" }).end();
  }
  const body = await read(request);
  const events = [JSON.parse(body)].flat();
  const kind = request.headers["aeg-event-type"];
  if (kind === "SubscriptionValidation") { // the Event Grid handshake, which is not signed
    const text = JSON.stringify({ validationResponse: events[0].data.validationCode });
    return response.writeHead(200, { "Content-Type": "application/json" }).end(text);
  }
  if (kind !== "SubscriptionDeletion") {
    // Not 401, which is never retried: with a wrong secret, every event would become a dead letter.
    if (secret && !signed(request.headers, body)) return response.writeHead(503).end("invalid signature");
    events.forEach((event) => once(event, request.headers["aeg-output-event-id"]));
  }
  response.writeHead(200).end();
}

createServer((request, response) => {
  take(request, response).catch((error) => response.writeHead(400).end(error.message));
}).listen(port, "127.0.0.1", () => console.log(`listening on 127.0.0.1:${port}`));
