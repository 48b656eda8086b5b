package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/migrations"
	"postrider/pgdev"
)

// deliveryBytes is what a delivery takes on disk with its share of events, attempts, dead letters, counts and indexes
// (1.05 KB measured), and what PostgreSQL's log and sorting take meanwhile.
const deliveryBytes = 1_700

// Filled is what a database was filled with, in rows, and what it took.
type Filled struct {
	Deliveries  int64 `json:"deliveries"`
	Owed        int64 `json:"owed"`
	DeadLetters int64 `json:"deadLetters"`
	Events      int64 `json:"events"`
	Attempts    int64 `json:"attempts"`
	// DatabaseBytes is with all indexes.
	DatabaseBytes int64 `json:"databaseBytes"`
	// FillSeconds is how long it took to make.
	FillSeconds float64 `json:"fillSeconds"`
}

// String prints it in a line.
func (f Filled) String() string {
	return fmt.Sprintf("%d deliveries, %d of them owed; %d dead letters, %d events, %d attempts; %.1f GB, made in %.0f s",
		f.Deliveries, f.Owed, f.DeadLetters, f.Events, f.Attempts, float64(f.DatabaseBytes)/1e9, f.FillSeconds)
}

// checkFilled says what cannot be made or asked.
func checkFilled(deliveries, rounds int) error {
	switch {
	case deliveries < leastDeliveries || deliveries > maxDeliveries:
		return fmt.Errorf("there can be %d to %d deliveries, not %d", leastDeliveries, maxDeliveries, deliveries)
	case rounds < 1:
		return fmt.Errorf("one must ask once or more, not %d times", rounds)
	}
	return nil
}

// filled is a database with a week's deliveries in it, that something is asked of.
type filled struct {
	what       string // the scenario, for the log
	deliveries int
	url        string
	log        io.Writer
	server     *pgdev.Server // nil where the database is the user's
	pool       *pgxpool.Pool
}

func (f *filled) say(format string, args ...any) {
	fmt.Fprintf(f.log, f.what+": "+format+"\n", args...)
}

// open starts a database, where none is given, and migrates it. Nobody would miss what is in a private one: it need not
// be durable.
func (f *filled) open(ctx context.Context) (err error) {
	if f.url == "" {
		if err := enoughRoom(os.TempDir(), int64(f.deliveries)*deliveryBytes); err != nil {
			return err
		}
		if f.server, err = pgdev.Start(ctx,
			pgdev.Options{Log: f.log, Settings: map[string]string{"max_wal_size": "2GB"}}); err != nil {
			return err
		}
		if err := f.server.CreateDatabase(ctx, "postrider"); err != nil {
			return err
		}
		f.url = f.server.URL("postrider")
	}
	if f.pool, err = pgxpool.New(ctx, f.url); err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	return migrations.Up(ctx, f.pool, f.log)
}

// enoughRoom says how much is missing in a folder. Where the system does not tell, there is enough.
func enoughRoom(dir string, needed int64) error {
	free, known := freeBytes(dir)
	if !known || free >= needed {
		return nil
	}
	return fmt.Errorf("that many deliveries need about %.1f GB in %s, where %.1f GB are free: ask for fewer "+
		"(--deliveries), or set TMPDIR to another folder",
		float64(needed)/1e9, dir, float64(free)/1e9)
}

// fill makes what is asked about, and says how much it is.
func (f *filled) fill(ctx context.Context) (r Filled, err error) {
	const totals = `SELECT (SELECT count(*) FROM postrider_internal.deliveries) + (SELECT count(*)
		    FROM postrider_internal.delivery_history), (SELECT count(*) FROM postrider_internal.deliveries),
		(SELECT count(*) FROM postrider_internal.dead_letters), (SELECT count(*) FROM postrider_internal.events),
		    (SELECT count(*) FROM postrider_internal.delivery_attempts), pg_database_size(current_database())`
	f.say("making %d deliveries of %d days", f.deliveries, fillDays)
	began := time.Now()
	if err := FillWeek(ctx, f.pool, f.deliveries, f.log); err != nil {
		return r, err
	}
	r.FillSeconds = round(time.Since(began).Seconds(), 1)
	if err := f.pool.QueryRow(ctx, totals).
		Scan(&r.Deliveries, &r.Owed, &r.DeadLetters, &r.Events, &r.Attempts, &r.DatabaseBytes); err != nil {
		return r, fmt.Errorf("count what there is: %w", err)
	}
	f.say("made in %.0f s, %.1f GB", r.FillSeconds, float64(r.DatabaseBytes)/1e9)
	return r, nil
}

// restart empties PostgreSQL's own memory. The caller's server is left alone.
func (f *filled) restart(ctx context.Context) (err error) {
	if f.server == nil {
		return nil
	}
	f.pool.Close()
	if err := f.server.Restart(ctx); err != nil {
		return err
	}
	if f.pool, err = pgxpool.New(ctx, f.url); err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	return nil
}

func (f *filled) close() error {
	if f.pool != nil {
		f.pool.Close()
	}
	if f.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopDeadline)
	defer cancel()
	return f.server.Stop(ctx)
}
