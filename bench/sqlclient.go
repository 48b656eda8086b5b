package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// connection is what a publisher sends its requests by, one at a time. do answers 200 for what was accepted; after an
// error nobody knows. cut may be called at any time, and ends the request under way.
type connection interface {
	do(request []byte) (status int, err error)
	said() []byte
	cut()
	close()
}

// sqlClient publishes by SQL, in a transaction for each request. Its requests are those of wireClient, without their
// head.
type sqlClient struct {
	database, topic string
	over            context.Context
	ended           context.CancelFunc
	conn            *pgx.Conn
	refusal         []byte
}

const (
	publishOneSQL  = "SELECT postrider.publish($1, $2::jsonb)"
	publishManySQL = "SELECT postrider.publish_batch($1, $2::jsonb)"
)

func newSQLClient(database, topicURL string) (*sqlClient, error) {
	endpoint, err := url.Parse(topicURL)
	if err != nil {
		return nil, fmt.Errorf("URL: %w", err)
	}
	c := &sqlClient{database: database, topic: strings.Split(endpoint.Path, "/")[2]}
	c.over, c.ended = context.WithCancel(context.Background())
	return c, nil
}

func (c *sqlClient) do(request []byte) (status int, err error) {
	ctx, cancel := context.WithTimeout(c.over, answerDeadline)
	defer cancel()
	if c.conn == nil {
		if c.conn, err = pgx.Connect(ctx, c.database); err != nil {
			return 0, fmt.Errorf("connect to the database: %w", err)
		}
	}
	_, body, _ := bytes.Cut(request, []byte("\r\n\r\n"))
	query := publishManySQL
	if bytes.Count(body, []byte(`"eventType"`)) == 1 {
		query, body = publishOneSQL, body[1:len(body)-1]
	}
	_, err = c.conn.Exec(ctx, query, c.topic, body)
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return 200, nil
	case errors.As(err, &refused):
		c.refusal = append(c.refusal[:0], refused.Message...)
		return 400, nil
	}
	c.disconnect()
	return 0, err
}

func (c *sqlClient) said() []byte { return c.refusal }
func (c *sqlClient) cut()         { c.ended() }

func (c *sqlClient) close() {
	c.disconnect()
	c.ended()
}

func (c *sqlClient) disconnect() {
	if c.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.conn.Close(ctx)
		c.conn = nil
	}
}
