package queue

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// Nodes are the processes that make attempts, as rows with a heartbeat. This node writes its own over a separate
// connection. The pool's connections may all be busy for seconds (a burst, a slow disk, a lock), and a node that waits
// for one through four heartbeats of the others loses its attempts to them in the middle of its requests.
type Nodes struct {
	config    *pgx.ConnConfig
	node      string
	version   string
	timeScale int
	conn      chan *pgx.Conn // the one connection, nil while there is none; its user has taken it out
	workers   atomic.Int64   // as of the last heartbeat
}

// NewNodes names this node and its version; timeScale is what its waits are divided by.
func NewNodes(config *pgx.ConnConfig, node, version string, timeScale int) *Nodes {
	n := &Nodes{config: config, node: node, version: version, timeScale: max(1, timeScale), conn: make(chan *pgx.Conn, 1)}
	n.conn <- nil
	return n
}

// Register announces this node, before its first fetch: a running job of a node that is not announced is taken away
// from it.
func (n *Nodes) Register(ctx context.Context, host string) error {
	const insert = `INSERT INTO postrider_internal.nodes (id, host, version, time_scale) VALUES ($1, $2, $3, $4)
		ON CONFLICT (id) DO NOTHING`
	if err := n.exec(ctx, insert, n.node, host, n.version, n.timeScale); err != nil {
		return fmt.Errorf("register node %s: %w", n.node, err)
	}
	return nil
}

// Beat writes this node's heartbeat, with how many inconsistencies its sweeper has found, and reads those of the other
// nodes. It goes on while the pool is busy. A node that was considered dead meanwhile announces itself again.
func (n *Nodes) Beat(ctx context.Context, host string, finds int64) (map[string]int64, error) {
	const update = `INSERT INTO postrider_internal.nodes AS n (id, host, version, beat, time_scale)
		VALUES ($1, $2, $3, 1, $5)
		ON CONFLICT (id) DO UPDATE SET beat = n.beat + 1, beat_at = now(), sweeper_finds = $4`
	const others = "SELECT id, beat FROM postrider_internal.nodes WHERE id <> $1"
	beats := map[string]int64{}
	err := n.over(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, update, n.node, host, n.version, finds, n.timeScale); err != nil {
			return fmt.Errorf("write the heartbeat: %w", err)
		}
		rows, _ := conn.Query(ctx, others, n.node) // its error is the rows'
		var id string
		var beat int64
		if _, err := pgx.ForEachRow(rows, []any{&id, &beat}, func() error { beats[id] = beat; return nil }); err != nil {
			return fmt.Errorf("read heartbeats: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	n.workers.Store(int64(len(beats)) + 1)
	return beats, nil
}

// WorkerNodes is how many nodes that deliver were registered at this node's last heartbeat, itself included; 1 before
// the first one, and on a node that delivers nothing and so has no heartbeat. A node that died is counted for the about
// five seconds until the others have noticed.
func (n *Nodes) WorkerNodes() int { return max(1, int(n.workers.Load())) }

// alone reports that, a second ago at most, only this node made attempts.
func (n *Nodes) alone() bool { return n.workers.Load() == 1 }

// Unregister removes nodes: itself at a clean stop, or others that are dead. The beat of the dead is given, so that one
// that beat again after all stays.
func (n *Nodes) Unregister(ctx context.Context, node string, beat *int64) error {
	const remove = "DELETE FROM postrider_internal.nodes WHERE id = $1 AND ($2::bigint IS NULL OR beat = $2)"
	if err := n.exec(ctx, remove, node, beat); err != nil {
		return fmt.Errorf("unregister node %s: %w", node, err)
	}
	return nil
}

func (n *Nodes) exec(ctx context.Context, statement string, args ...any) error {
	return n.over(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, statement, args...)
		return err
	})
}

// over runs statements over the connection, and opens it if there is none. A connection that failed is closed: the next
// heartbeat, a second later, uses a new one. That costs a handshake if the connection was not at fault, and no
// heartbeat waits for one that was.
func (n *Nodes) over(ctx context.Context, statements func(*pgx.Conn) error) (err error) {
	var conn *pgx.Conn
	select {
	case conn = <-n.conn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { n.conn <- conn }()
	if conn == nil {
		if conn, err = pgx.ConnectConfig(ctx, n.config); err != nil {
			return fmt.Errorf("connect for the heartbeat: %w", err)
		}
	}
	if err = statements(conn); err != nil {
		postgres.CloseConn(conn)
		conn = nil
	}
	return err
}

// Close ends the connection. A later heartbeat would open another.
func (n *Nodes) Close() {
	if conn := <-n.conn; conn != nil {
		postgres.CloseConn(conn)
	}
	n.conn <- nil
}
