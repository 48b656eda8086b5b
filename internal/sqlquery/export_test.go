package sqlquery

import (
	"context"

	"github.com/jackc/pgx/v5/pgconn"
)

// Session runs many queries, without an audit. A new session for each would take 0.1 s of CPU.
type Session struct {
	runner *Runner
	conn   *pgconn.PgConn
	login  *login
}

// Open connects with one of the logins.
func (r *Runner) Open(ctx context.Context) (*Session, error) {
	conn, login, err := r.connect(ctx)
	return &Session{r, conn, login}, err
}

// Close ends the session.
func (s *Session) Close() {
	closeConn(s.conn)
	s.login.release()
}

// Run is that of a Runner for a query whose rows do not matter.
func (s *Session) Run(ctx context.Context, q Request) error {
	return s.run(ctx, q, func(ctx context.Context, conn *pgconn.PgConn, q Request) (int, error) {
		if err := execute(ctx, conn, declare, q, nil); err != nil {
			return 0, err
		}
		return 0, execute(ctx, conn, "", Request{SQL: "FETCH ALL FROM " + cursor}, nil)
	})
}

// Plan is that of a Runner.
func (s *Session) Plan(ctx context.Context, q Request) error {
	return s.run(ctx, q, func(ctx context.Context, conn *pgconn.PgConn, q Request) (int, error) {
		return 0, execute(ctx, conn, "EXPLAIN "+declare, q, nil)
	})
}

func (s *Session) run(ctx context.Context, q Request, do execution) error {
	if err := q.validate(); err != nil {
		return err
	}
	defer func() { _ = rollBack(ctx, s.conn) }()
	_, err := s.runner.query(ctx, s.conn, s.login, q, do)
	return err
}
