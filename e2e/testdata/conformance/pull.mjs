// Publishes, receives and settles with @azure/eventgrid-namespaces.
import { AzureKeyCredential } from "@azure/core-auth";
import { EventGridReceiverClient, EventGridSenderClient } from "@azure/eventgrid-namespaces";
import { run } from "./cases.mjs";

const options = { allowInsecureConnection: true };
const sender = (c) => new EventGridSenderClient(c.url, new AzureKeyCredential(c.key), c.topic, options);
const receiver = (c) => new EventGridReceiverClient(c.url, new AzureKeyCredential(c.key), c.topic, "billing", options);
const event = (id) => ({ id, source: "/shop", type: "shop.order.placed", time: new Date(Date.UTC(2030, 5, 15)),
  data: { text: "<Grüße 🚀>", n: 1.5 } });
const seen = (received) => received.details.map((d) => ({ ...d.event, deliveryCount: d.brokerProperties.deliveryCount }));

await run({
  "settle": async (c) => {
    const client = receiver(c), token = {}, events = [];
    await sender(c).sendEvents(["acked", "released", "delayed", "rejected"].map(event));
    await sender(c).sendEvents({ ...event("binary"), dataContentType: "image/png", data: Uint8Array.from([0, 1, 254, 255]) });
    while (events.length < 5) {
      const received = await client.receiveEvents({ maxEvents: 100, maxWaitTime: 10 });
      for (const d of received.details) token[d.event.id] = d.brokerProperties.lockToken;
      events.push(...seen(received));
    }
    return {
      token, events,
      renewed: await client.renewEventLocks([token.acked]),
      acked: await client.acknowledgeEvents([token.acked, token.binary]),
      lost: await client.acknowledgeEvents([token.acked, "none"]),
      released: await client.releaseEvents([token.released]),
      again: seen(await client.receiveEvents({ maxEvents: 100 })),
      delayed: await client.releaseEvents([token.delayed], { releaseDelay: "10" }),
      rejected: await client.rejectEvents([token.rejected]),
      later: seen(await client.receiveEvents({ maxWaitTime: 120 })),
    };
  },
  "wait": async (c) => {
    const waiting = receiver(c).receiveEvents({ maxWaitTime: 10 });
    await new Promise((resolve) => setTimeout(resolve, 1000));
    await sender(c).sendEvents(event("awaited"));
    return seen(await waiting);
  },
  "wait for nothing": async (c) => seen(await receiver(c).receiveEvents({ maxWaitTime: 10 })),
  "abort": async (c) => {
    await receiver(c).receiveEvents({ abortSignal: AbortSignal.timeout(500) }).catch((e) => { if (e.name !== "AbortError") throw e; });
    await sender(c).sendEvents(event("after"));
    return seen(await receiver(c).receiveEvents());
  },
  "wrong key": async (c) => receiver(c).receiveEvents(),
  "too many": async (c) => receiver(c).receiveEvents({ maxEvents: 101 }),
  "no such event subscription": async (c) => receiver(c).acknowledgeEvents(["none"]),
  "not a queue": async (c) => receiver(c).receiveEvents(),
});
