package queue

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

// Nodes are the processes that make attempts, as rows with a heartbeat. This node writes its heartbeat over a separate
// connection. The pool's connections may be busy for seconds, and after four heartbeats the other nodes would reclaim
// this node's attempts during its requests.
type Nodes struct {
	config    *pgx.ConnConfig
	node      string
	version   string
	timeScale int
	keyIDs    []string
	conn      chan *pgx.Conn // the connection, nil if there is none; its user has received it
	workers   atomic.Int64   // as of the last heartbeat
}

// NewNodes has this node's name and version; timeScale divides its waits. keyIDs are its encryption keys, first the one
// that it encrypts with.
func NewNodes(config *pgx.ConnConfig, node, version string, timeScale int, keyIDs []string) *Nodes {
	n := &Nodes{
		config: config, node: node, version: version, timeScale: max(1, timeScale), keyIDs: keyIDs,
		conn: make(chan *pgx.Conn, 1),
	}
	n.conn <- nil
	return n
}

// Register inserts this node before its first fetch. Other nodes reclaim the running jobs of an unregistered node.
func (n *Nodes) Register(ctx context.Context, host string) error {
	const insert = `INSERT INTO postrider_internal.nodes (id, host, version, time_scale, key_ids)
		VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO NOTHING`
	if err := n.exec(ctx, insert, n.node, host, n.version, n.timeScale, n.keyIDs); err != nil {
		return fmt.Errorf("register node %s: %w", n.node, err)
	}
	return nil
}

// Beat writes this node's heartbeat, with how many inconsistencies its sweeper has found, and returns those of the
// other nodes. A node that was considered dead meanwhile registers again.
func (n *Nodes) Beat(ctx context.Context, host string, finds int64) (map[string]int64, error) {
	const update = `INSERT INTO postrider_internal.nodes AS n (id, host, version, beat, time_scale, key_ids)
		VALUES ($1, $2, $3, 1, $5, $6)
		ON CONFLICT (id) DO UPDATE SET beat = n.beat + 1, beat_at = now(), consistency_repairs = $4`
	const others = "SELECT id, beat FROM postrider_internal.nodes WHERE id <> $1"
	beats := map[string]int64{}
	err := n.over(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, update, n.node, host, n.version, finds, n.timeScale, n.keyIDs); err != nil {
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
// the first heartbeat, and on a node that delivers nothing. A dead node counts for about five seconds.
func (n *Nodes) WorkerNodes() int { return max(1, int(n.workers.Load())) }

// alone reports that no other node was registered at the last heartbeat.
func (n *Nodes) alone() bool { return n.workers.Load() == 1 }

// Unregister removes a node: this one at a clean stop, or a dead one by its last beat. A node that has written another
// heartbeat stays.
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

// over runs statements over the connection, and opens it if there is none. After an error it closes the connection, so
// that the next heartbeat, a second later, uses a new one.
func (n *Nodes) over(ctx context.Context, statements func(*pgx.Conn) error) error {
	var conn *pgx.Conn
	select {
	case conn = <-n.conn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { n.conn <- conn }()
	var err error
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

// Close closes the connection. A later heartbeat would open another.
func (n *Nodes) Close() {
	if conn := <-n.conn; conn != nil {
		postgres.CloseConn(conn)
	}
	n.conn <- nil
}
