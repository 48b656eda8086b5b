// Publishes with @azure/eventgrid.
import { AzureKeyCredential, AzureSASCredential, EventGridPublisherClient, generateSharedAccessSignature } from "@azure/eventgrid";
import { run } from "./cases.mjs";

const hour = 3600_000;
const key = (c) => new AzureKeyCredential(c.key);
const sas = async (c) => new AzureSASCredential(await generateSharedAccessSignature(c.url, key(c), new Date(Date.now() + hour)));
const client = (c, schema, credential) => new EventGridPublisherClient(c.url, schema, credential, { allowInsecureConnection: true });

const gridEvent = (id) => ({
  id, eventType: "Shop.OrderPlaced", subject: "orders/" + id, dataVersion: "1.1", eventTime: new Date(Date.UTC(2030, 5, 15, 18, 20, 15, 678)),
  data: { text: "Grüße, 世界 \u0000 \"/\\\" 🚀", numbers: [1, 2.5, 1e21, -0.000001], none: null, nested: { deep: [[], {}] } },
});
const cloudEvent = (id) => ({
  id, source: "/shop", type: "shop.order.placed", subject: "orders/" + id, time: new Date(Date.UTC(2030, 5, 15, 18, 20, 15, 678)),
  dataschema: "https://example.com/order", data: { text: "Grüße 🚀", n: 1.5 }, extensionAttributes: { ext1: "one", ext2: 5, ext3: true },
});
const binaryEvent = (id) => ({ id, source: "/shop", type: "shop.picture.taken", datacontenttype: "image/png", data: Uint8Array.from([0, 1, 254, 255]) });

await run({
  "grid, key": async (c) => client(c, "EventGrid", key(c)).send([gridEvent("g1"), { ...gridEvent("g2"), topic: c.topic }]),
  "grid, signature": async (c) => client(c, "EventGrid", await sas(c)).send([gridEvent("g3")]),
  "cloud, key": async (c) => client(c, "CloudEvent", key(c)).send([cloudEvent("c1"), binaryEvent("c2"), { source: "/shop", type: "shop.closed" }]),
  "cloud, signature": async (c) => client(c, "CloudEvent", await sas(c)).send([cloudEvent("c3")]),
  "custom, key": async (c) => client(c, "Custom", key(c)).send([{ orderId: 7, action: "Placed", customer: "Anna", price: 1.5 }, { orderId: "8" }]),
  "custom, signature": async (c) => client(c, "Custom", await sas(c)).send([{ orderId: "9", action: "Placed" }]),
  "custom, none": async (c) => client(c, "Custom", key(c)).send([]),

  "wrong key": async (c) => client(c, "EventGrid", key(c)).send([gridEvent("e1")]),
  "expired signature": async (c) => {
    const expired = await generateSharedAccessSignature(c.url, key(c), new Date(Date.now() - hour));
    await client(c, "EventGrid", new AzureSASCredential(expired)).send([gridEvent("e2")]);
  },
  "no such topic": async (c) => client(c, "EventGrid", key(c)).send([gridEvent("e3")]),
  "another schema": async (c) => client(c, "EventGrid", key(c)).send([gridEvent("e4")]),
  "an event without a type": async (c) => client(c, "EventGrid", key(c)).send([gridEvent("e5"), { ...gridEvent("e6"), eventType: "" }]),
  "too large": async (c) => client(c, "EventGrid", key(c)).send([{ ...gridEvent("e7"), data: { text: "x".repeat(1100_000) } }]),

  "database away": async (c) => client(c, "EventGrid", key(c)).send([gridEvent("r1")]),
  "address put off": async (c) => client(c, "EventGrid", key(c)).send([gridEvent("r2")]),
});
