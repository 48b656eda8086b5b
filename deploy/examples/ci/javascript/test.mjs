// A test against `postrider dev`, with Node.js alone. It publishes an event that is delivered and one that becomes a
// dead letter, reads what became of them, and resets postrider for the next test.
import assert from 'node:assert/strict'

const url = process.env.POSTRIDER_URL ?? 'http://127.0.0.1:7480'
const headers = { authorization: `Bearer ${process.env.POSTRIDER_API_KEY ?? 'postrider-dev-admin'}` }

async function call(method, path) {
  const response = await fetch(url + path, { method, headers })
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${await response.clone().text()}`)
  return response.status === 204 ? undefined : response.json()
}

async function publish(...events) {
  const response = await fetch(`${url}/topics/orders/api/events?api-version=2018-01-01`, {
    method: 'POST',
    headers: { 'aeg-sas-key': process.env.TOPIC_KEY, 'content-type': 'application/json' },
    body: JSON.stringify(events.map(([id, subject]) => (
      { id, subject, eventType: 'Shop.OrderPlaced', eventTime: new Date().toISOString(), dataVersion: '1', data: {} }))),
  })
  assert.equal(response.status, 200, await response.text())
}

// ended waits until no delivery is pending, and returns the state of each.
async function ended() {
  for (;;) {
    const { value } = await call('GET', '/v1/deliveries?topic=orders')
    const pending = value.some(delivery => delivery.state === 'pending')
    if (value.length > 0 && !pending) {
      return value.map(delivery => `${delivery.eventId} ${delivery.subscription} ${delivery.state}`).sort()
    }
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}

await call('DELETE', '/v1/dev/state')
await publish(['1807', 'orders/1807'], ['1808', 'orders/broken/1808'])
assert.deepEqual(await ended(), ['1807 billing delivered', '1808 billing delivered', '1808 broken dead_lettered'])
const { value: [letter] } = await call('GET', '/v1/deadLetters')
assert.equal(letter.eventId, '1808')
assert.equal(letter.lastStatus, 400)

await call('DELETE', '/v1/dev/state')
assert.deepEqual((await call('GET', '/v1/events')).value, [])
console.log('ok')
