// Publishes with @azure/eventgrid-namespaces.
import { AzureKeyCredential } from "@azure/core-auth";
import { EventGridSenderClient } from "@azure/eventgrid-namespaces";
import { run } from "./cases.mjs";

const client = (c) => new EventGridSenderClient(c.url, new AzureKeyCredential(c.key), c.topic, { allowInsecureConnection: true });
const event = (id) => ({
  id, source: "/shop", type: "shop.order.placed", subject: "orders/" + id, time: new Date(Date.UTC(2030, 5, 15, 18, 20, 15, 678)),
  dataContentType: "application/json", data: { text: "Grüße 🚀", n: 1.5 },
});

await run({
  "one": async (c) => client(c).sendEvents(event("n1")),
  "many": async (c) => client(c).sendEvents([event("n2"), event("n3")]),
  "binary": async (c) => client(c).sendEvents({ ...event("n4"), dataContentType: "image/png", data: Uint8Array.from([0, 1, 254, 255]) }),
  "no content type": async (c) => client(c).sendEvents({ ...event("n5"), dataContentType: undefined }),

  "wrong key": async (c) => client(c).sendEvents(event("e1")),
  "no such topic": async (c) => client(c).sendEvents(event("e2")),
  "an event without a type": async (c) => client(c).sendEvents({ ...event("e3"), type: "" }),
  "not a namespace topic": async (c) => client(c).sendEvents(event("e4")),
});
