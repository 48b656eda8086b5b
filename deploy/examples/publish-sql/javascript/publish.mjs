// Stores an order and publishes its event in one transaction: both are committed, or neither.
//
//   npm install pg
//   DATABASE_URL=postgres://… node publish.mjs orders
import pg from "pg";

const [topic] = process.argv.slice(2);
const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
try {
  await client.query("CREATE TABLE IF NOT EXISTS shop_orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, total numeric NOT NULL)");
  await client.query("BEGIN");
  const { rows: [order] } = await client.query("INSERT INTO shop_orders (total) VALUES (9.50) RETURNING id");
  const event = { eventType: "Shop.OrderPlaced", subject: `orders/${order.id}`, data: { total: 9.5 } };
  const { rows: [published] } = await client.query("SELECT postrider.publish($1, $2::jsonb) AS id", [topic, JSON.stringify(event)]);
  await client.query("COMMIT");
  console.log("published", published.id);
} finally {
  await client.end(); // without COMMIT, neither the order nor the event is stored
}
