package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// lease keeps a connection of its own for saying that this node lives. The pool's may all be busy for seconds (a burst, a
// slow disk, somebody's lock), and a node that waits in that queue for four of the others' heartbeats loses its attempts
// to them in the middle of its requests.
type lease struct {
	config  *pgx.ConnConfig
	line    chan *pgx.Conn // the one connection, nil while there is none; whoever uses it has taken it out
	workers atomic.Int64   // as of the last heartbeat
}

func newLease(config *pgx.ConnConfig) *lease {
	l := &lease{config: config, line: make(chan *pgx.Conn, 1)}
	l.line <- nil
	return l
}

// over runs statements over the connection, which it opens where there is none. A connection that failed is thrown away:
// the next heartbeat, a second later, comes over a new one. That costs a handshake where the connection was not at fault, and
// keeps nobody waiting for one that was.
func (l *lease) over(ctx context.Context, statements func(*pgx.Conn) error) (err error) {
	var conn *pgx.Conn
	select {
	case conn = <-l.line:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { l.line <- conn }()
	if conn == nil {
		if conn, err = pgx.ConnectConfig(ctx, l.config); err != nil {
			return fmt.Errorf("connect for the heartbeat: %w", err)
		}
	}
	if err = statements(conn); err != nil {
		hangUp(conn)
		conn = nil
	}
	return err
}

// close ends the connection. A later heartbeat would open another.
func (l *lease) close() {
	if conn := <-l.line; conn != nil {
		hangUp(conn)
	}
	l.line <- nil
}

// hangUp says goodbye, for at most a second: the other end may be gone.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// Register announces this node, before its first fetch: a running job of a node that is not announced is taken away
// from it.
func (s *Store) Register(ctx context.Context, host string) error {
	const insert = `INSERT INTO postrider_internal.nodes (id, host, version, time_scale) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO NOTHING`
	if err := s.lease.exec(ctx, insert, s.node, host, s.version, max(1, s.timeScale)); err != nil {
		return fmt.Errorf("register node %s: %w", s.node, err)
	}
	return nil
}

// Beat writes this node's heartbeat and reads everyone else's, over a connection of its own: it goes on while the pool is
// busy. A node that was thought dead meanwhile announces itself again.
func (s *Store) Beat(ctx context.Context, host string) (map[string]int64, error) {
	const update = `INSERT INTO postrider_internal.nodes AS n (id, host, version, beat, time_scale) VALUES ($1, $2, $3, 1, $5)
		ON CONFLICT (id) DO UPDATE SET beat = n.beat + 1, beat_at = now(), sweeper_finds = $4`
	beats := map[string]int64{}
	err := s.lease.over(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, update, s.node, host, s.version, s.SweeperFinds(), max(1, s.timeScale)); err != nil {
			return fmt.Errorf("write the heartbeat: %w", err)
		}
		rows, _ := conn.Query(ctx, "SELECT id, beat FROM postrider_internal.nodes WHERE id <> $1", s.node) // its error is the rows'
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
	s.lease.workers.Store(int64(len(beats)) + 1)
	return beats, nil
}

// WorkerNodes is how many nodes that deliver were registered at this node's last heartbeat, itself included; 1 before the
// first one, and on a node that delivers nothing and so has no heartbeat. A node that died is counted for the about five
// seconds until the others have noticed.
func (s *Store) WorkerNodes() int { return max(1, int(s.lease.workers.Load())) }

// aloneAtWork reports that, a second ago at most, nobody but this node made attempts.
func (s *Store) aloneAtWork() bool { return s.lease.workers.Load() == 1 }

// Unregister removes nodes: itself at a clean stop, or others that are dead. The beat of the dead is given, so that one
// that beat again after all stays.
func (s *Store) Unregister(ctx context.Context, node string, beat *int64) error {
	const remove = "DELETE FROM postrider_internal.nodes WHERE id = $1 AND ($2::bigint IS NULL OR beat = $2)"
	if err := s.lease.exec(ctx, remove, node, beat); err != nil {
		return fmt.Errorf("unregister node %s: %w", node, err)
	}
	return nil
}

func (l *lease) exec(ctx context.Context, statement string, args ...any) error {
	return l.over(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, statement, args...)
		return err
	})
}
