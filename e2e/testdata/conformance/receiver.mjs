// Receives deliveries as programs do that are built on npm's cloudevents and on @azure/eventgrid: by the path, with HTTP.toEvent or with
// EventGridDeserializer. It prints its own URL, and then a line for each request before it answers. It lets itself be validated: as an
// endpoint of CloudEvents by its answer to OPTIONS, as one of Event Grid by sending the code back.
import { createServer } from "node:http";
import { HTTP } from "cloudevents";
import { EventGridDeserializer, isSystemEvent } from "@azure/eventgrid";

const deserializer = new EventGridDeserializer();
const readers = {
  "cloudevents": async (headers, body) => [HTTP.toEvent({ headers, body })].flat().map((e) => e.toJSON()),
  "grid": async (_, body) => deserializer.deserializeEventGridEvents(body),
  "cloud": async (_, body) => deserializer.deserializeCloudEvents(body),
  "json": async (_, body) => JSON.parse(body),
};
function plain(name, value) {
  const bytes = this[name];
  return bytes instanceof Uint8Array ? "base64:" + Buffer.from(bytes).toString("base64") : value;
}

async function validationResponse(body) {
  const [event] = await deserializer.deserializeEventGridEvents(body);
  if (!isSystemEvent("Microsoft.EventGrid.SubscriptionValidationEvent", event)) throw new Error("no validation event: " + body);
  return JSON.stringify({ validationResponse: event.data.validationCode });
}

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks).toString("utf8");
  const [, reader, subscription] = request.url.split("/");
  const line = { subscription, type: request.headers["content-type"], body };
  let answer;
  try {
    if (request.method === "OPTIONS") {
      line.handshake = request.headers["webhook-request-origin"];
      response.setHeader("WebHook-Allowed-Origin", line.handshake);
    } else if (request.headers["aeg-event-type"] === "SubscriptionValidation") {
      line.handshake = "code";
      answer = await validationResponse(body);
    } else {
      line.events = await readers[reader](request.headers, body);
    }
  } catch (e) {
    line.error = String(e);
  }
  console.log(JSON.stringify(line, plain));
  response.writeHead(line.error ? 400 : 200).end(answer);
});
server.listen(0, "127.0.0.1", () => console.log(JSON.stringify({ url: "http://127.0.0.1:" + server.address().port })));
