// A client with openapi-typescript's types of openapi.yaml: topic, event subscription, event, dead letter, redelivery.
import createClient from "openapi-fetch";
import type { paths } from "./api.js";

declare const process: { env: Record<string, string> };

const baseUrl = process.env["URL"]!, topic = "from-typescript";
const admin = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${process.env["TOKEN"]}` } });

function must<T>(what: string, answer: { data?: T; error?: unknown; response: Response }, status: number): T {
  if (answer.response.status !== status) throw new Error(`${what}: ${answer.response.status} ${JSON.stringify(answer.error)}`);
  return answer.data as T;
}

const made = must("topic", await admin.PUT("/v1/topics/{topic}", { params: { path: { topic } }, body: {} }), 201);
const subscription = must("event subscription", await admin.PUT("/v1/topics/{topic}/subscriptions/{subscription}", {
  params: { path: { topic, subscription: "all" } },
  body: { endpointUrl: `${process.env["ENDPOINT"]}/ts`, endpointValidation: "skip", signing: null },
}), 201);
if (subscription.hold !== null || subscription.retryPolicy.policy !== "ga-2021") throw new Error(JSON.stringify(subscription));

const publisher = createClient<paths>({ baseUrl, headers: { "aeg-sas-key": made.key1! } });
must("publish", await publisher.POST("/topics/{topic}/api/events", {
  params: { path: { topic } },
  body: [{ id: "1", subject: "orders/1", eventType: "Shop.OrderPlaced", eventTime: "2026-11-20T09:30:00Z", dataVersion: "1", data: { total: 1.5 } }],
  parseAs: "text",
}), 200);

for (;;) {
  const letters = must("dead letters", await admin.GET("/v1/deadLetters", { params: { query: { topic } } }), 200);
  const letter = letters.value[0];
  if (letter) {
    const path = { deadLetterId: letter.deadLetterId };
    const again = must("redeliver", await admin.POST("/v1/deadLetters/{deadLetterId}/redeliver", { params: { path }, body: { again: false } }), 200);
    const twice = await admin.POST("/v1/deadLetters/{deadLetterId}/redeliver", { params: { path }, body: { again: false } });
    const error = twice.error!.error;
    console.log(error.code, again.deliveryId > 0);
    break;
  }
  await new Promise((done) => setTimeout(done, 20));
}

// What the types must not allow.
// @ts-expect-error: the parameter is deadLetteredFrom
() => admin.GET("/v1/deadLetters", { params: { query: { frm: "1" } } });
