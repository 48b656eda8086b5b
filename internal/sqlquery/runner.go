package sqlquery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"postrider/internal/postgres"
)

const (
	// Logins is how many queries run at a time, for all nodes together.
	Logins = 4
	// defaultTimeout is the time limit of a query.
	defaultTimeout = 30 * time.Second
	// MaxRows is the most rows that Run returns.
	MaxRows = 1000
	// maxBytes limits the values that Run returns, and each row that PostgreSQL sends.
	maxBytes = 8 << 20
	// PostgreSQL stores the rows of a FETCH before it sends the first one: few rows, until they are known to be small.
	smallStep, bigStep = 100, 1000
	// maxSQL is the longest SQL, in bytes.
	maxSQL = 64 << 10
)

// Request is a query with its parameters.
type Request struct {
	SQL string
	// Args are the values of $1, $2, … as text. PostgreSQL converts them to the types that the SQL implies.
	Args []string
	// MaxRows limits the rows of Run, at most to MaxRows; 0 = MaxRows.
	MaxRows int
	// Name of the saved query that runs, for the audit; "" for another one.
	Name string

	// types of Args that PostgreSQL has found.
	types []uint32
}

// Column is a column of a result.
type Column struct {
	// Name of the column.
	Name string `json:"name"`
	// PostgreSQL's name of its type.
	Type string `json:"type"`
}

// Result of a query. Values are PostgreSQL's text; nil = NULL.
type Result struct {
	Columns []Column
	Rows    [][]*string
	// More reports that rows beyond the limits were not read.
	More bool
	Took time.Duration
}

// Options of a Runner.
type Options struct {
	// URLs replace the login roles: each is used by one query at a time.
	URLs []string
	// Timeout of a query; 0 = defaultTimeout.
	Timeout time.Duration
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Runner runs queries. Any goroutine may call its methods.
type Runner struct {
	db      *postgres.DB
	sealer  *postgres.Sealer
	timeout time.Duration
	log     *slog.Logger
	fixed   []*login // of the URLs
	running *postgres.Bound
}

// NewRunner returns a Runner that connects with the login roles of the database, or with the URLs of the options.
func NewRunner(db *postgres.DB, sealer *postgres.Sealer, o Options) (*Runner, error) {
	r := &Runner{db: db, sealer: sealer, timeout: cmp.Or(o.Timeout, defaultTimeout), log: o.Logger}
	r.log = cmp.Or(r.log, slog.Default())
	for _, url := range o.URLs {
		config, err := pgconn.ParseConfig(url)
		if err != nil {
			return nil, fmt.Errorf("read the URL of the query database: %w", err)
		}
		l := newLogin(config)
		r.fixed = append(r.fixed, l)
	}
	most := cmp.Or(len(r.fixed), Logins)
	r.running = postgres.NewBound("queries", most, max(1, most/2))
	return r, nil
}

// Timeout is the time limit of a query.
func (r *Runner) Timeout() time.Duration { return r.timeout }

// Run runs a query and returns its first rows. *Error for one that is not allowed or that PostgreSQL rejects; ErrBusy,
// *postgres.BusyError, ErrDeadline, ErrTooLarge, ErrNotConfigured; ErrUnavailable. A canceled ctx cancels the query.
func (r *Runner) Run(ctx context.Context, q Request) (*Result, error) {
	limit, bytes := MaxRows, 0
	if q.MaxRows > 0 {
		limit = min(limit, q.MaxRows)
	}
	result := &Result{Rows: [][]*string{}}
	began := time.Now()
	begin := func(columns []Column) error {
		result.Columns = columns
		return nil
	}
	err := r.Stream(ctx, q, begin, func(row []*string) error {
		bytes += size(row)
		if result.More = len(result.Rows) == limit || bytes > maxBytes && len(result.Rows) > 0; result.More {
			return errStop
		}
		result.Rows = append(result.Rows, row)
		return nil
	})
	if err != nil {
		return nil, err
	}
	result.Took = time.Since(began)
	return result, nil
}

// errStop ends a query without an error.
var errStop = errors.New("enough rows")

// Stream runs a query without a limit of rows. It calls begin with the columns before the first row, and row for each.
// An error of them ends the query and is returned. The other errors are those of Run.
func (r *Runner) Stream(
	ctx context.Context, q Request, begin func([]Column) error, row func([]*string) error,
) error {
	return r.within(ctx, q, func(ctx context.Context, conn *pgconn.PgConn, q Request) (rows int, err error) {
		if err := execute(ctx, conn, declare, q, nil); err != nil {
			return 0, err
		}
		columns, err := columnsOf(ctx, conn)
		if err != nil {
			return 0, err
		}
		if err := begin(columns); err != nil {
			return 0, err
		}
		step, end := smallStep, 0
		for err == nil && rows == end {
			bytes := 0
			fetch := Request{SQL: fmt.Sprintf("FETCH %d FROM %s", step, cursor)}
			err = execute(ctx, conn, "", fetch, func(values []*string) error {
				rows++
				bytes += size(values)
				return row(values)
			})
			end += step
			step = smallStep
			if bytes < maxBytes/10 {
				step = bigStep
			}
		}
		if errors.Is(err, errStop) {
			return rows - 1, nil
		}
		return rows, err
	})
}

// size of the values in bytes.
func size(row []*string) int {
	n := 0
	for _, value := range row {
		if value != nil {
			n += len(*value)
		}
	}
	return n
}

// Plan returns the plan of a query. The errors are those of Run.
func (r *Runner) Plan(ctx context.Context, q Request) (string, error) {
	var plan strings.Builder
	err := r.within(ctx, q, func(ctx context.Context, conn *pgconn.PgConn, q Request) (int, error) {
		return 0, execute(ctx, conn, "EXPLAIN "+declare, q, func(row []*string) error {
			plan.WriteString(*row[0] + "\n")
			return nil
		})
	})
	return plan.String(), err
}

func (q *Request) validate() error {
	if strings.TrimSpace(q.SQL) == "" {
		return &Error{Message: "the query is empty", Hint: onlySelect}
	}
	if len(q.SQL) > maxSQL {
		return &Error{Message: "the query is longer than 64 KiB"}
	}
	// The protocol ends a text at the character 0: what follows would be read as another part of the message.
	for _, text := range append([]string{q.SQL}, q.Args...) {
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return &Error{Message: "the query and its parameters must be UTF-8 without the character 0"}
		}
	}
	return nil
}
