// Command publish stores an order and publishes its event in one transaction: both are committed, or neither.
//
//	DATABASE_URL=postgres://… go run ./deploy/examples/publish-sql/go orders
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: publish TOPIC")
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, topic string) error {
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE TABLE IF NOT EXISTS shop_orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY "+
		"KEY, total numeric NOT NULL)"); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var order int64
		if err := tx.QueryRow(ctx, "INSERT INTO shop_orders (total) VALUES (9.50) RETURNING id").Scan(&order); err != nil {
			return err
		}
		event := map[string]any{
			"eventType": "Shop.OrderPlaced", "subject": fmt.Sprint("orders/", order), "data": map[string]any{"total": 9.5},
		}
		var id string
		if err := tx.QueryRow(ctx, "SELECT postrider.publish($1, $2::jsonb)::text", topic, event).Scan(&id); err != nil {
			return err
		}
		fmt.Println("published", id)
		return nil
	})
}
