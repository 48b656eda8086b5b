package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

const (
	applicationClients = 6
	// applicationName names its sessions in pg_stat_activity.
	applicationName = "shop"
	// applicationTable has a row for each transaction that was committed, written in the transaction that publishes.
	applicationTable = "CREATE TABLE public.orders (id text PRIMARY KEY)"
)

var errChangedItsMind = errors.New("this one is rolled back")

// application writes orders and publishes each in the same transaction until it is killed. It rolls half of them back.
type application struct {
	url     string
	ended   atomic.Int64 // transactions, committed or rolled back
	dead    atomic.Bool
	sockets sync.Map // net.Conn of each session
	working sync.WaitGroup
}

func (a *application) start() {
	a.dead.Store(false)
	for range applicationClients {
		a.working.Go(func() {
			for !a.dead.Load() {
				a.session(context.Background())
				<-time.After(pollTime) // the database is away
			}
		})
	}
}

// kill closes the sockets in the middle of transactions, as the kernel does when a process is killed.
func (a *application) kill() {
	a.dead.Store(true)
	a.sockets.Range(func(socket, _ any) bool {
		_ = socket.(net.Conn).Close()
		return true
	})
	a.working.Wait()
}

func (a *application) session(ctx context.Context) {
	config, err := pgx.ParseConfig(a.url)
	if err != nil {
		return
	}
	config.RuntimeParams["application_name"] = applicationName
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close(ctx) }()
	socket := conn.PgConn().Conn()
	a.sockets.Store(socket, nil)
	defer a.sockets.Delete(socket)
	for !a.dead.Load() {
		id := uuid.NewString()
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return placeOrder(ctx, tx, id) })
		if err != nil && !errors.Is(err, errChangedItsMind) {
			return
		}
		a.ended.Add(1)
	}
}

func placeOrder(ctx context.Context, tx pgx.Tx, id string) error {
	const publish = `SELECT postrider.publish('orders', jsonb_build_object('id', $1::text, 'source', '/shop', 'type',
		    'Shop.OrderPlaced'))`
	steps := []string{"INSERT INTO public.orders VALUES ($1)", publish}
	if rand.N(2) == 0 {
		steps = []string{publish, "INSERT INTO public.orders VALUES ($1)"}
	}
	for _, step := range steps {
		if _, err := tx.Exec(ctx, step, id); err != nil {
			return fmt.Errorf("place an order: %w", err)
		}
	}
	if rand.N(2) == 0 {
		return errChangedItsMind
	}
	return nil
}

// Exactly the committed events are delivered when the application (within a transaction), the service or PostgreSQL is
// killed.
func TestFaultPublishInTransactionsThatAreKilled(t *testing.T) {
	t.Parallel()
	transactions, kills := int64(200), int64(3)
	if *faults {
		transactions, kills = 10_000, 40
	}
	server, db := ownCluster(t)
	sink := newGate(t)
	sink.open()
	n := startNode(t, db)
	n.topic("orders")
	n.subscribe("orders", "billing", sink.url)
	db.exec(applicationTable)
	app := &application{url: db.url}
	app.start()
	t.Cleanup(app.kill)
	killed := map[string]int{}
	for kill := range kills {
		least := transactions * (kill + 1) / (kills + 1)
		eventually(t, fmt.Sprintf("%d transactions", least), func() bool { return app.ended.Load() >= least })
		switch kill % 3 {
		case 0:
			app.kill()
			app.start()
			killed["application"]++
		case 1:
			n.kill()
			n = startNode(t, db)
			killed["service"]++
		default:
			require.NoError(t, server.Kill())
			require.NoError(t, server.Restart(t.Context()))
			db.pool.Reset() // its connections are dead, and the pool would try each once
			killed["PostgreSQL"]++
		}
	}
	eventually(t, "all transactions", func() bool { return app.ended.Load() >= transactions })
	app.kill()

	// The database may still commit for one that is dead: what its sessions last said is nothing to go by, only that they
	// are gone.
	eventually(t, "the application's sessions have ended", func() bool {
		return one[int](db, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", applicationName) == 0
	})
	committed := one[[]string](db, "SELECT array_agg(id) FROM public.orders")
	eventually(t, "all that was committed has arrived", func() bool { return len(sink.arrivalsSoFar()) >= len(committed) })
	db.drained()
	require.ElementsMatch(t, committed, sink.arrivalsSoFar(), "delivered is what was committed")
	require.Equal(t, len(committed), one[int](db, "SELECT count(*) FROM postrider.events WHERE matched = 1"))
	require.Equal(t, len(committed),
		one[int](db, "SELECT count(DISTINCT delivery_id) FROM postrider.deliveries WHERE state = 'delivered'"))
	require.Greater(t, app.ended.Load()-int64(len(committed)), transactions/3, "rolled back")
	t.Logf("%d transactions, %d committed, %d delivered; killed %v", app.ended.Load(), len(committed),
		len(sink.arrivalsSoFar()), killed)
}
