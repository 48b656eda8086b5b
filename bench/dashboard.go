package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"postrider/cmd/postrider/app"
	"postrider/postgres"
	"postrider/server"
	"postrider/web"
)

// DashboardOptions say how much RunDashboard looks at.
type DashboardOptions struct {
	// Deliveries is how many there are, 10,000 or more; default 1,000,000. A tenth of them became dead letters, a
	// twentieth is still owed.
	Deliveries int
	// Rounds is how many times each page is asked for after the first; default 20.
	Rounds int
	// DatabaseURL is an empty PostgreSQL to use, which keeps what it is filled with. "" starts a private one and removes
	// it.
	DatabaseURL string
	// Command is what the report says was run; "" prints the options.
	Command string
}

// defaultDeliveries are those of the dashboard's goal: each page within 100 ms.
const defaultDeliveries = 1_000_000

// Prepare fills in what is not set and says what cannot be measured.
func (o *DashboardOptions) Prepare() error {
	o.Deliveries, o.Rounds = orDefault(o.Deliveries, defaultDeliveries), orDefault(o.Rounds, defaultRounds)
	o.Command = orDefault(o.Command,
		fmt.Sprintf("postrider bench dashboard --deliveries %d --rounds %d", o.Deliveries, o.Rounds))
	return checkFilled(o.Deliveries, o.Rounds)
}

// DashboardReport is how long the pages of the dashboard took.
type DashboardReport struct {
	Command string `json:"command"`
	Filled
	Rounds   int         `json:"rounds"`
	Pages    []PageTimes `json:"pages"`
	Settings Settings    `json:"settings"`
	Machine  Machine     `json:"machine"`
}

// PageTimes are one page's, in milliseconds: from the request to the last byte of the answer.
type PageTimes struct {
	Name string `json:"name"`
	Path string `json:"path"`
	// Status is that of the first answer: 504 of a page that its statements had no time for.
	Status int `json:"status"`
	Bytes  int `json:"bytes"`
	// FirstMs is the first time, after a restart of PostgreSQL, which has nothing in its own memory then.
	FirstMs  float64 `json:"firstMs"`
	MedianMs float64 `json:"medianMs"`
	P95Ms    float64 `json:"p95Ms"`
	MaxMs    float64 `json:"maxMs"`
	// CPUMs is the mean CPU time of PostgreSQL and of this process: what the page costs, however busy the machine is. Nil
	// where the system does not tell, or the database is the user's.
	CPUMs *float64 `json:"cpuMs"`
}

// String prints the report for a person, the slowest page first.
func (r DashboardReport) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n%s, %d CPUs %s, PostgreSQL %s\n%s\n\n", r.Command, r.Machine.OS, r.Machine.CPUs,
		r.Machine.Model, r.Settings.Version, r.Filled)
	w := tabwriter.NewWriter(&out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "first ms\tmedian ms\tp95 ms\tmax ms\tCPU ms\tkB\t  page")
	sorted := slices.SortedStableFunc(slices.Values(r.Pages),
		func(a, b PageTimes) int { return -cmpFloat(a.P95Ms, b.P95Ms) })
	for _, p := range sorted {
		cpu := "–"
		if p.CPUMs != nil {
			cpu = fmt.Sprintf("%.1f", *p.CPUMs)
		}
		fmt.Fprintf(w, "%.1f\t%.1f\t%.1f\t%.1f\t%s\t%.0f\t  %s: %s\n", p.FirstMs, p.MedianMs, p.P95Ms, p.MaxMs, cpu,
			float64(p.Bytes)/1000, p.Name, p.said())
	}
	_ = w.Flush()
	return out.String()
}

// said is the page's address, with its status where it was not shown.
func (p *PageTimes) said() string {
	if p.Status != http.StatusOK {
		return fmt.Sprintf("%s is answered %d", p.Path, p.Status)
	}
	return p.Path
}

func cmpFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	default:
		return 0
	}
}

// RunDashboard fills a database with deliveries of a week, asks for every page of the dashboard over HTTP, and reports
// how long that took. It judges nothing. What it started has ended when it returns.
//
// An error means that there is nothing to report: the disk is too small, the database is not empty, or ctx ended.
func RunDashboard(ctx context.Context, o DashboardOptions, log io.Writer) (report DashboardReport, err error) {
	if err := o.Prepare(); err != nil {
		return report, fmt.Errorf("bench: %w", err)
	}
	l := &looking{
		o:      o,
		filled: filled{what: "dashboard", deliveries: o.Deliveries, url: o.DatabaseURL, log: &lockedWriter{Writer: log}},
	}
	l.report = DashboardReport{Command: o.Command, Rounds: o.Rounds, Machine: thisMachine()}
	if err := l.try(ctx); err != nil {
		return report, fmt.Errorf("bench dashboard: %w", err)
	}
	return l.report, nil
}

// looking is one run of RunDashboard.
type looking struct {
	filled
	o      DashboardOptions
	report DashboardReport
}

func (l *looking) try(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.open(ctx); err != nil {
		return err
	}
	if l.report.Filled, err = l.fill(ctx); err != nil {
		return err
	}
	if err := l.restart(ctx); err != nil {
		return err
	}
	return l.serve(ctx, l.lookAtAll)
}

// sealKey is the encryption key of a database that holds no secret.
const sealKey = "of a benchmark, nothing to hide!"

// serve runs do while the dashboard answers, as `dev` shows it: without a password.
func (l *looking) serve(ctx context.Context, do func(ctx context.Context, base string) error) (err error) {
	handler, err := l.dashboard(ctx)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	srv := server.NewHTTPServer("", handler)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	defer func() {
		err = errors.Join(err, srv.Close())
		if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
			err = errors.Join(err, ended)
		}
	}()
	return do(ctx, "http://"+listener.Addr().String())
}

// dashboard is what answers at /ui/, on a store that nobody delivers from.
func (l *looking) dashboard(ctx context.Context) (http.Handler, error) {
	sealer, err := postgres.NewSealer([]byte(sealKey))
	if err != nil {
		return nil, err
	}
	if _, err := l.pool.Exec(ctx, "UPDATE postrider_internal.event_subscriptions SET endpoint_sealed = $1",
		sealer.Seal("event_subscriptions.endpoint_sealed", "https://example.com/")); err != nil {
		return nil, fmt.Errorf("seal the endpoints: %w", err)
	}
	pool, err := postgres.OpenPool(ctx, l.url, 4) // with the settings of the service's own
	if err != nil {
		return nil, err
	}
	l.pool.Close()
	l.pool = pool
	quiet := slog.New(slog.DiscardHandler)
	s, err := app.New(ctx, app.Options{Pool: pool, Sealer: sealer, Node: "bench", Logger: quiet})
	if err != nil {
		return nil, err
	}
	api, err := server.New(server.Options{Parts: s.API(), AdminToken: newSecret(), Logger: quiet})
	if err != nil {
		return nil, err
	}
	return web.Handler(web.Options{Parts: s.Dashboard(), API: api.Handler(), Open: true, Logger: quiet})
}

// lookAtAll asks for all pages in turn, again and again, so that each meets what the others have left in memory.
func (l *looking) lookAtAll(ctx context.Context, base string) error {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	l.report.Settings, err = readSettings(ctx, conn.Conn())
	conn.Release()
	if err != nil {
		return err
	}
	v := &viewer{base: base, client: &http.Client{}, pool: l.pool}
	defer v.client.CloseIdleConnections()
	if l.report.Pages, err = v.pages(ctx); err != nil {
		return err
	}
	l.say("asking for %d pages %d times", len(l.report.Pages), l.o.Rounds)
	took, cpu := make([][]float64, len(l.report.Pages)), make([]float64, len(l.report.Pages))
	for range l.o.Rounds {
		for i := range l.report.Pages {
			before := l.cpu()
			again, _, err := v.get(ctx, l.report.Pages[i].Path)
			if err != nil {
				return err
			}
			took[i], cpu[i] = append(took[i], again.FirstMs), cpu[i]+l.cpu()-before
		}
	}
	for i := range l.report.Pages {
		l.report.Pages[i].summarise(took[i])
		if l.server != nil && l.cpu() > 0 {
			l.report.Pages[i].CPUMs = new(round(1000*cpu[i]/float64(l.o.Rounds), 1))
		}
	}
	return nil
}

// cpu is what PostgreSQL and this process have used, in seconds; 0 where the system does not tell.
func (l *looking) cpu() float64 {
	if l.server == nil {
		return 0
	}
	database, known := treeSeconds(l.server.PID())
	own, ok := cpuSeconds(os.Getpid())
	if !known || !ok {
		return 0
	}
	return database + own
}

// summarise takes one time or more.
func (p *PageTimes) summarise(took []float64) {
	slices.Sort(took)
	n := len(took)
	p.MedianMs, p.P95Ms, p.MaxMs = took[n/2], took[(n*95+99)/100-1], took[n-1]
}
