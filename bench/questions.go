package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/docs"
	"postrider/migrations"
)

const (
	defaultRounds = 20
	// leastDeliveries leave something of everything.
	leastDeliveries = 10_000
	// maxDeliveries keep the numbers in an event's id within their digits, and a disk within reason.
	maxDeliveries = 1_000_000_000
)

// QuestionsOptions say how much RunQuestions asks about.
type QuestionsOptions struct {
	// Deliveries is how many there are, 10,000 or more: a tenth of them became dead letters, a twentieth is still owed.
	Deliveries int
	// Rounds is how many times each question is asked after the first; default 20.
	Rounds int
	// DatabaseURL is an empty PostgreSQL to use, which keeps what it is filled with. "" starts a private one and removes
	// it.
	DatabaseURL string
	// Command is what the report says was run; "" prints the options.
	Command string
}

// Prepare fills in what is not set and says what cannot be measured.
func (o *QuestionsOptions) Prepare() error {
	o.Rounds = orDefault(o.Rounds, defaultRounds)
	o.Command = orDefault(o.Command,
		fmt.Sprintf("postrider bench deadletters --deliveries %d --rounds %d", o.Deliveries, o.Rounds))
	return checkFilled(o.Deliveries, o.Rounds)
}

// QuestionsReport is how long the questions of docs/sql.md took.
type QuestionsReport struct {
	Command string `json:"command"`
	Filled
	Rounds    int             `json:"rounds"`
	Questions []QuestionTimes `json:"questions"`
	Settings  Settings        `json:"settings"`
	Machine   Machine         `json:"machine"`
}

// QuestionTimes are one question's, in milliseconds, with planning, all rows, and the transaction around it.
type QuestionTimes struct {
	Number int    `json:"number"`
	Name   string `json:"name"`
	Title  string `json:"title"`
	Rows   int    `json:"rows"`
	// FirstMs is the first time after a restart of PostgreSQL, which has nothing in its own memory then; the system may.
	// Of a database that is the user's, the first time.
	FirstMs  float64 `json:"firstMs"`
	MedianMs float64 `json:"medianMs"`
	MaxMs    float64 `json:"maxMs"`
}

// String prints the report for a person.
func (r QuestionsReport) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n%s, %d CPUs %s, PostgreSQL %s\n", r.Command, r.Machine.OS, r.Machine.CPUs, r.Machine.Model,
		r.Settings.Version)
	fmt.Fprintf(&out, "%s\n\n", r.Filled)
	w := tabwriter.NewWriter(&out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "rows\tfirst ms\tmedian ms\tmax ms\t  question")
	for _, q := range r.Questions {
		fmt.Fprintf(w, "%d\t%.1f\t%.1f\t%.1f\t  %d %s: %s\n", q.Rows, q.FirstMs, q.MedianMs, q.MaxMs, q.Number,
			q.Name, q.Title)
	}
	_ = w.Flush()
	return out.String()
}

// RunQuestions fills a database with deliveries of a week, asks it every question of docs/sql.md as `postrider sql`
// does, and reports how long that took. It judges nothing. What it started has ended when it returns.
//
// An error means that there is nothing to report: the disk is too small, the database is not empty, a question failed,
// or ctx ended.
func RunQuestions(ctx context.Context, o QuestionsOptions, log io.Writer) (report QuestionsReport, err error) {
	if err := o.Prepare(); err != nil {
		return report, fmt.Errorf("bench: %w", err)
	}
	a := &asking{
		o:      o,
		filled: filled{what: "deadletters", deliveries: o.Deliveries, url: o.DatabaseURL, log: &lockedWriter{Writer: log}},
	}
	a.report = QuestionsReport{Command: o.Command, Rounds: o.Rounds, Machine: thisMachine()}
	if err := a.try(ctx); err != nil {
		return report, fmt.Errorf("bench deadletters: %w", err)
	}
	return a.report, nil
}

// asking is one run of RunQuestions.
type asking struct {
	filled
	o      QuestionsOptions
	report QuestionsReport
}

func (a *asking) try(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, a.close()) }()
	if err := a.open(ctx); err != nil {
		return err
	}
	if a.report.Filled, err = a.fill(ctx); err != nil {
		return err
	}
	if err := a.restart(ctx); err != nil {
		return err
	}
	return a.askAll(ctx)
}

// askAll asks all questions in turn, again and again, so that each meets what the others have left in memory.
func (a *asking) askAll(ctx context.Context) error {
	conn, err := a.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Release()
	if a.report.Settings, err = readSettings(ctx, conn.Conn()); err != nil {
		return err
	}
	a.say("asking %d questions %d times", len(docs.Questions()), a.o.Rounds+1)
	questions := docs.Questions()
	took := make([][]float64, len(questions))
	for range a.o.Rounds + 1 {
		for i, q := range questions {
			began := time.Now()
			rows, err := ask(ctx, conn.Conn(), q.SQL)
			if err != nil {
				return fmt.Errorf("question %d (%s): %w", q.Number, q.Name, err)
			}
			took[i] = append(took[i], float64(time.Since(began).Microseconds())/1000)
			if len(took[i]) == 1 {
				a.report.Questions = append(a.report.Questions,
					QuestionTimes{Number: q.Number, Name: q.Name, Title: q.Title, Rows: rows, FirstMs: took[i][0]})
			}
		}
	}
	for i := range questions {
		again := took[i][1:]
		slices.Sort(again)
		a.report.Questions[i].MedianMs, a.report.Questions[i].MaxMs = again[len(again)/2], again[len(again)-1]
	}
	return nil
}

// ask asks as `postrider sql` does, and reads every row. The time includes the transaction around it.
func ask(ctx context.Context, conn *pgx.Conn, statement string) (count int, err error) {
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL ROLE "+migrations.ReaderRole+"; SET LOCAL jit = off"); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, statement, pgx.QueryExecModeExec)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if _, err := rows.Values(); err != nil {
				return err
			}
			count++
		}
		return rows.Err()
	})
	return count, err
}
