"""Stores an order and publishes its event in one transaction: both are committed, or neither.

    pip install psycopg
    DATABASE_URL=postgres://… python3 publish.py orders
"""

import os
import sys

import psycopg
from psycopg.types.json import Jsonb

topic = sys.argv[1]
with psycopg.connect(os.environ["DATABASE_URL"]) as connection:  # commits at the end of the block; rolls back where it fails
    connection.execute("CREATE TABLE IF NOT EXISTS shop_orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, total numeric NOT NULL)")
    order = connection.execute("INSERT INTO shop_orders (total) VALUES (9.50) RETURNING id").fetchone()[0]
    event = {"eventType": "Shop.OrderPlaced", "subject": f"orders/{order}", "data": {"total": 9.5}}
    published = connection.execute("SELECT postrider.publish(%s, %s)", (topic, Jsonb(event))).fetchone()[0]
print("published", published)
