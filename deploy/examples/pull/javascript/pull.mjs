// Receives events of an event subscription with delivery mode Queue, processes and acknowledges them.
//
//   POSTRIDER_URL=http://127.0.0.1:7480 TOPIC_KEY=… node pull.mjs orders ledger
import { setTimeout } from "node:timers/promises";

const [topic, subscription] = process.argv.slice(2).map(encodeURIComponent);
const queue = `${process.env.POSTRIDER_URL}/topics/${topic}/eventsubscriptions/${subscription}`;

// May be called again for the same event: if the acknowledgment is lost, or comes after the end of the lock.
async function handle(event) {
  console.log("received", event.type, event.id, JSON.stringify(event.data));
}

async function post(operation, parameters, body) {
  const query = new URLSearchParams({ "api-version": "2024-06-01", ...parameters });
  const response = await fetch(`${queue}:${operation}?${query}`, {
    method: "POST",
    headers: { "aeg-sas-key": process.env.TOPIC_KEY, "content-type": "application/json" },
    body: body && JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  return response.json();
}

async function settle(operation, lockTokens, parameters = {}) {
  if (lockTokens.length === 0) return;
  const { failedLockTokens: failed } = await post(operation, parameters, { lockTokens });
  if (failed.length > 0) console.error(`${failed.length} locks had ended: ${failed[0].error.code}`); // received again
}

// Waits up to a minute for events. Those that cannot be processed are available again after 10 s.
async function consume() {
  const done = [], failed = [];
  for (const { brokerProperties, event } of (await post("receive", { maxEvents: 100, maxWaitTime: 60 })).value) {
    try {
      await handle(event);
      done.push(brokerProperties.lockToken);
    } catch (error) {
      console.error(event.id, error);
      failed.push(brokerProperties.lockToken);
    }
  }
  await settle("acknowledge", done);
  await settle("release", failed, { releaseDelayInSeconds: 10 });
}

for (;;) {
  try {
    await consume();
  } catch (error) {
    console.error(String(error));
    await setTimeout(1000);
  }
}
