package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"postrider/jobs"
	"postrider/policy"
	"postrider/server"
)

// printer writes whole lines from many goroutines. After close it is silent.
type printer struct {
	mu     sync.Mutex
	out    io.Writer
	closed bool
}

func newPrinter(out io.Writer) *printer { return &printer{out: out} }

// Write implements io.Writer.
func (p *printer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return len(b), nil
	}
	return p.out.Write(b)
}

func (p *printer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

func (p *printer) line(text string)       { fmt.Fprintln(p, text) }
func (p *printer) row(name, value string) { fmt.Fprintf(p, "  %-15s%s\n", name, value) }

func (p *printer) published(r server.PublishReport) {
	var lines strings.Builder
	for i := range r.Events {
		fmt.Fprintf(&lines, "%s --> %-10s %s (%s), wanted by %d\n", clock(time.Now()), printable(r.Topic), printable(r.Events[i].ID), printable(r.Events[i].Type), r.Matched[i])
	}
	_, _ = io.WriteString(p, lines.String())
}

func (p *printer) attempted(r jobs.AttemptReport) {
	what := printable(r.EventID)
	if r.Events > 1 {
		what += fmt.Sprintf(" and %d more", r.Events-1)
	}
	fmt.Fprintf(p, "%s <-- %-10s %s attempt %d: %s in %s, %s\n", clock(time.Now()), printable(r.Subscription), what, r.Number,
		met(r.Result), r.Duration.Round(100*time.Microsecond), sequel(r))
}

func clock(t time.Time) string { return t.Format("15:04:05") }

func met(r policy.Result) string {
	if r.Err != policy.ErrorNone {
		return string(r.Err)
	}
	return fmt.Sprint(r.Status)
}

// sequel says what follows from the attempt.
func sequel(r jobs.AttemptReport) string {
	switch r.Verdict.Action {
	case policy.Delivered:
		return "delivered"
	case policy.Retry:
		wait := r.Verdict.At.Sub(r.Now)
		return fmt.Sprintf("next attempt in %s (%s)", wait.Round(either(wait < time.Second, time.Millisecond, 100*time.Millisecond)), r.Verdict.Why)
	case policy.DeadLetter:
		return fmt.Sprintf("dead-lettered: %s", r.Verdict.Reason)
	default:
		return fmt.Sprintf("dropped: %s", r.Verdict.Reason)
	}
}

// printable keeps what publishers wrote from moving the cursor or colouring the terminal.
func printable(s string) string { return cell(s) }

func (d *dev) curl(flags, api, id string) string {
	return fmt.Sprintf("  curl -i %s'%s/topics/%s/api/events?api-version=2018-01-01' -H 'aeg-sas-key: %s' -H 'content-type: application/json' \\\n    -d '[%s]'",
		flags, api, demoTopic, d.ready.TopicKey, demoEvent(id, "2026-01-01T00:00:00Z"))
}

func (d *dev) greet() {
	program := os.Args[0]
	d.out.row("REST API", d.ready.API+"   described at "+d.ready.API+"/openapi")
	d.out.row("Dashboard", d.ready.API+"/ui/")
	if d.ready.APITLS != "" {
		d.out.row("With TLS", d.ready.APITLS+"   certificate authority "+d.ready.CAFile)
	}
	d.out.row("Demo endpoint", d.ready.Sink+"/ok  /flaky  /slow  /status/{code}  /hang")
	d.out.row("Database", d.ready.DatabaseURL)
	d.out.row("Topic", demoTopic+" with event subscriptions ok, flaky (500 twice, then 204) and refused (400)")
	d.out.row("Topic key", d.ready.TopicKey)
	d.out.row("Admin token", d.ready.AdminToken)
	if n := d.options.TimeScale; n > 1 {
		d.out.row("Time", fmt.Sprintf("%d times as fast: 24 hours of retries take %s; ack timeouts are real", n, (24*time.Hour/time.Duration(n)).Round(time.Millisecond)))
	}
	d.out.line("")
	d.out.line("Publish an event:")
	d.out.line(d.curl("", d.ready.API, "my-1"))
	if d.ready.APITLS != "" {
		d.out.line("Publish an event with TLS:")
		d.out.line(d.curl(fmt.Sprintf("--cacert '%s' ", d.ready.CAFile), d.ready.APITLS, "my-2"))
	}
	if d.local() { // else the verbs need the admin token
		d.out.line("Or a made-up order; `listen --topic demo` is an endpoint of your own:")
		d.out.line(fmt.Sprintf("  %s publish %s --server %s --sample", program, demoTopic, d.ready.API))
	}
	d.out.line("Look at the dead letters:")
	d.out.line(fmt.Sprintf("  %s sql --database-url '%s' \"select event_id, subscription, reason, attempts, last_outcome, last_status from postrider.dead_letters\"", program, d.ready.DatabaseURL))
	d.out.line("Ask a policy what it does:")
	d.out.line(fmt.Sprintf("  %s policy explain ga-2021 --status 503", program))
	d.out.line("")
}
